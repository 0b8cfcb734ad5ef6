"""One process of the model crash test: resumes a run whose proposals a model writes.

Usage: python -m tests.search.model_run DATABASE JOURNAL PROPOSALS [API_BASE]

Without API_BASE the model is a scripted one in this process, which writes a line of the journal
before it "sends" and another before it answers, with system calls that survive kill -9.
"""

import asyncio
import os
import sys
from pathlib import Path

from evolve.core.model import Commit, LanguageModel, ModelReply, ModelRequest, not_committed
from evolve.llm import LiteLLM
from evolve.search.execution.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.search.conftest import make_search
from tests.search.models import ScriptedModel, writer

PRICE = {"prompt": 1.0, "completion": 2.0}


class Journalled(ScriptedModel):
    """Leaves a trace of every call."""

    def __init__(self, path: Path) -> None:
        super().__init__(slots=6, latency_s=0.02)
        self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        commit()
        os.write(self._journal, f"sent {request.key}-{sample}\n".encode())
        reply = await super().complete(request, sample)
        os.write(self._journal, f"answered {request.key}-{sample}\n".encode())
        return reply


def over_http(api_base: str, **settings) -> LiteLLM:
    """The real client, asking a server on this machine."""
    defaults = {"price": PRICE, "max_tokens": 500, "deadline_s": 10.0, "slots": 16}
    return LiteLLM(model="openai/scripted", api_base=api_base, **defaults | settings)


def main(database: str, journal: str, proposals: str, api_base: str = "") -> None:
    store = Store.open(database, create=True)
    if not store.runs():
        config = {"baseline": "eager"}
        store.create_run(name="crash", task=synthetic_task(), config=config, seed=3)
    model: LanguageModel = over_http(api_base) if api_base else Journalled(Path(journal))
    search = make_search(store, store.run("crash"), operators=writer(), model=model)
    limits = from_config({"proposals": int(proposals)})
    judge = SyntheticEvaluator(slots=2, latency_s=0.005)
    with Path(journal).open("a") as file:
        file.write("began\n")
    asyncio.run(Pipeline(search, judge, limits, verify=False).run())
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
