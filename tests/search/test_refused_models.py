"""What an endpoint refuses before it generates anything, over real HTTP and a real ledger:

1. It is never charged, whatever status it comes with.
2. What no waiting mends ends the run after a few calls, and names the setting.
"""

import asyncio
import json

import pytest

from evolve.core.errors import UsageError
from evolve.search.execution.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.testing.model_replies import usage
from evolve.testing.model_server import Answer, ModelServer, Raw, Request
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from tests.search.conftest import make_search
from tests.search.model_run import over_http
from tests.search.models import writer

WINDOW = Raw(
    {
        "object": "error",
        "message": "This model's maximum context length is 64 tokens. However, you requested 3064 "
        "tokens (3000 in the messages, 64 in the completion).",
        "code": 400,
    },
    400,
)
LIMITED = Raw({"error": {"message": "Rate limit exceeded, try again in 10ms", "code": 429}})
BROKEN_OFF = {"error": {"message": "No provider", "code": 503}, "finish_reason": "error"}
NOTHING_SAID = Raw({"choices": [{"message": {"role": "assistant", "content": None}} | BROKEN_OFF]})


def search(store, run, server, proposals) -> None:
    async def body() -> None:
        model = over_http(server.api_base)
        search = make_search(store, run, operators=writer(), model=model)
        limits = from_config({"proposals": proposals, "wall_time": 100})
        try:
            await Pipeline(search, SyntheticEvaluator(slots=2), limits, verify=False).run()
        finally:
            await model.close()

    asyncio.run(body())


def test_a_window_that_holds_no_prompt_ends_the_run_with_the_settings_name(store, run):
    with ModelServer([WINDOW]) as server:
        with pytest.raises(UsageError, match=r"llm\.context_tokens=64.*evolve resume"):
            search(store, run, server, 40)
        assert len(server.log.requests) < 30  # of the forty: two in a row, and what was under way
    progress = store.progress(run.id)
    assert (progress.tokens, progress.usd, progress.tokens_reserved) == (0, 0, 0)


@pytest.mark.slow
def test_only_what_was_generated_is_charged(store, run):
    """Half of the requests are refused first, with status 200 or inside of a choice."""

    def script(request: Request):
        if request.number % 4 in (0, 1):
            return LIMITED if request.number % 4 else NOTHING_SAID
        return Answer(f"{SEED_SOURCE}\n\nNUMBER = {request.number}\n")

    with ModelServer(script) as server:
        search(store, run, server, 6)
        delivered = server.log.delivered
        counted = sum(
            usage(server.log.requests[number], answer)["total_tokens"]
            for number, answer in delivered.items()
        )
        assert len(server.log.requests) > len(delivered) >= 6
    assert store.progress(run.id).tokens == counted
    replies = [json.loads(line) for line in store.dump(run.id)]
    assert all(
        each["reply"]["status"] == "completed"
        for line in replies
        for each in line.get("rounds", ())
    )
