"""Whole searches of landscapes as presets compose them: every part from `conf/`, none replaced."""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any

from evolve.app import components
from evolve.core.model import LanguageModel
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.store import RunRow, Store
from evolve.store.champion import champion
from evolve.testing.landscapes import Landscape
from evolve.testing.landscapes_parts import LandscapeEvaluator
from tests.cli.recording import settings
from tests.search.landscape_model import LandscapeModel

_numbers = count()


def preset(name: str, *words: str) -> dict[str, Any]:
    """The configuration of `evolve run search=NAME WORDS` with a model that has a price."""
    model = ("llm.model=openai/climber", "llm.price.prompt=1", "llm.price.completion=2")
    return settings(f"search={name}", *model, "store.reuse=false", *words) | {"audit": []}


def searched(
    store: Store,
    landscape: Landscape,
    config: Mapping[str, Any],
    *,
    seed: int,
    evaluations: int | None,
    model: LanguageModel | None = None,
) -> Search:
    """A search of a run of its own, to its verified end: one thing after the other.

    Without a number of evaluations it ends by the limits of its configuration.
    """
    run = store.create_run(
        name=f"run-{next(_numbers)}", task=landscape.task(), config=dict(config), seed=seed
    )
    model = model or LandscapeModel(landscape=landscape, seed=seed)
    search = components.build_search(store, run, config, model=model)
    judge = LandscapeEvaluator(landscape=landscape, seed=seed)
    own = components.build_termination(config)
    limit = own if evaluations is None else from_config({"evaluations": evaluations})

    async def body() -> None:
        try:
            await Pipeline(search, judge, limit, serial=True).run()
        finally:
            await model.close()

    asyncio.run(body())
    return search


def verified_progress(store: Store, run: RunRow, landscape: Landscape) -> float:
    """How far the verified champion has really come: 0 is the start, 1 the optimum."""
    crowned = champion(store, run)
    return landscape.progress(store.source(crowned.program)) if crowned else 0.0
