"""A recorded run: what `evolve run` does, with the synthetic judge in place of a worker."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from evolve.app import components
from evolve.app.config.compose import compose, to_plain
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Pipeline
from evolve.store import RunRow, Store


def settings(*words: str) -> dict[str, Any]:
    """The configuration of `evolve run task=synthetic WORDS`, with no opponents but its baseline.

    One method unless the words name a search: a portfolio has more parts than tests are about.
    """
    named = any(word.startswith("search=") for word in words)
    search = () if named else ("search=single",)
    config = to_plain(compose(["task=synthetic", *search, *words]))
    baseline = config["baseline"]
    return config | {"opponents": {} if baseline == "eager" else {baseline: ""}}


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
