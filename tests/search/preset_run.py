"""Whole runs of presets on the synthetic task, with a scripted model: every part from `conf/`."""

import asyncio
from typing import Any

from evolve.app import components
from evolve.core.model import ModelReply, ModelRequest
from evolve.search.execution.pipeline import Outcome, Pipeline
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings
from tests.search.models import ScriptedModel, answer

MODEL = ("llm.model=openai/scripted", "llm.price.prompt=1", "llm.price.completion=2")


def reply(source: str) -> ModelReply:
    """What every operator can read: a choice, a limit, and a program."""
    said = "## Analysis\nACTION: 1\nLIMIT: memory\n\n## Code\n\n"
    return answer(f"{said}```python\n{source}\n```")


def other_programs(request: ModelRequest, number: int) -> ModelReply:
    return reply(f"{SEED_SOURCE}\nNUMBER = {number}\n")


def searched(
    store: Store,
    *words: str,
    script: Any = other_programs,
    model: ScriptedModel | None = None,
    judge: SyntheticEvaluator | None = None,
    seeds: tuple[str, ...] = (SEED_SOURCE,),
    serial: bool = True,
) -> tuple[Outcome, RunRow]:
    """A run of a preset's own parts, to the end of its budget."""
    config = settings("name=demo", "store.reuse=false", *MODEL, *words) | {"audit": []}
    task = synthetic_task(seeds=seeds)
    run = store.create_run(name="demo", task=task, config=config, seed=config["seed"])
    model = model or ScriptedModel(script=script)
    search = components.build_search(store, run, config, model=model)
    judge, limit = judge or SyntheticEvaluator(), components.build_termination(config)
    session = Pipeline(search, judge, limit, serial=serial, verify=False)
    return asyncio.run(session.run()), run
