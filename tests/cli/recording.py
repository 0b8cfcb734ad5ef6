"""A recorded run: what `evolve run` does, with the synthetic judge in place of a worker."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from evolve.app import components
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Pipeline
from evolve.store import RunRow, Store
from evolve.testing.model_server import Answer, ModelServer, Request
from evolve.testing.synthetic import SEED_SOURCE
from tests.composing import composed

PRICE = ("llm.price.prompt=1", "llm.price.completion=2")


def settings(*words: str) -> dict[str, Any]:
    """The configuration of `evolve run task=synthetic WORDS`, with no opponents but its baseline.

    One method unless the words name a search: a portfolio has more parts than tests are about.
    """
    named = any(word.startswith("search=") for word in words)
    search = () if named else ("search=single",)
    config = composed("task=synthetic", *search, *words)
    baseline = config["baseline"]
    return config | {"opponents": {} if baseline == "eager" else {baseline: ""}}


def script(request: Request) -> str | Answer:
    """Programs for a while, then words, as models do."""
    if request.number % 5 == 4:
        return "Let me think about that."
    source = SEED_SOURCE.replace("BLOCK = 16", f"BLOCK = {16 << request.number % 5}")
    return f"```python\n{source}\n\nNUMBER = {request.number}\n```"


def diagnosing(request: Request) -> str:
    """What limits a program where that is asked, else a program."""
    return "LIMIT: memory" if "LIMIT: one of" in request.prompt else script(request)


def words_for(api_base: str, *more: str) -> list[str]:
    model = ("llm.model=openai/scripted", f"llm.api_base={api_base}")
    return [*model, *PRICE, "operators=llm", *more]


def words(server: ModelServer, *more: str) -> list[str]:
    return words_for(server.api_base, *more)


def record(
    store: Store,
    task: Task,
    judge: Evaluator,
    *words: str,
    audit: Sequence[Mapping[str, str]] = (),
) -> RunRow:
    """Search to the end as the words say; the run is called `demo` unless they name it."""
    config = settings("name=demo", "termination.evaluations=12", *words) | {"audit": [*audit]}
    run = store.create_run(name=config["name"], task=task, config=config, seed=config["seed"])
    search = Search(
        store=store,
        run=run,
        archive=components.build_archive(config),
        selection=components.build_selection(config),
        operators=components.build_operators(config),
    )
    asyncio.run(Pipeline(search, judge, components.build_termination(config)).run())
    return run
