"""Findings of finished runs for the prompts of a new one: gathered once and stored with it."""

from collections.abc import Iterator, Mapping
from typing import Any

from evolve.app.components import asks_models, build_operators, build_recall
from evolve.app.database import location_of
from evolve.app.inputs import judge_of
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.report.text import count_text
from evolve.store import Store
from operators.memory import Recall


def with_recalled(config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The configuration of a new run with the findings of finished ones (`recalled`).

    A replay takes those of the run whose answers it repeats.
    """
    recall, location = build_recall(config), location_of(config)
    if not Store.exists(location) or not asks_models(build_operators(config)):
        return {**config, "recalled": []}
    with Store.open(location, read_only=True) as store:
        if config["llm"]["kind"] == "replay":
            told = store.run(config["llm"]["run"]).config.get("recalled", [])
            return {**config, "recalled": told}
        runs = [
            run
            for run in store.runs()
            if run.state == "finished" and judge_of(store, run, config) is not None
        ]
        found = recall.of(store, runs, task) if recall.runs else []
    return {**config, "recalled": [each.to_json() for each in found]}


def refuse_recall(config: Mapping[str, Any]) -> None:
    """Raise UsageError for settings of `memory` if runs are compared, which recall nothing."""
    recall = build_recall(config)
    if recall.runs and recall != Recall():
        raise UsageError(
            "memory.* has no effect here: runs that are compared recall no other runs; leave it out"
        )


def recalled_lines(config: Mapping[str, Any]) -> Iterator[str]:
    """The line about it when a run begins."""
    if found := config.get("recalled"):
        yield f"memory      {count_text(len(found), 'finding')} of finished runs for its prompts"
