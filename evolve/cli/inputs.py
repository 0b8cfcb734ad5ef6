"""What a configuration names and a run must hold for ever: task, programs, the user's baseline."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve.cli.flags import open_store, read_candidate
from evolve.core.errors import UsageError
from evolve.core.program import Language
from evolve.core.task import Task
from evolve.core.tunables import render
from evolve.tasks import find_task

if TYPE_CHECKING:
    from evolve.store import Store

BASELINE_FILE = "file:"
ON_CPU = (Language.CPP, Language.TORCH)  # what has a time there; Triton's interpreter has none


def load_task(config: Mapping[str, Any]) -> Task:
    """The task with everything that a search of it may start from, in the order of trying.

    Raises:
        UsageError: no such task, an unreadable file, or nothing to start from.
    """
    settings = config["task_config"]
    task = find_task(
        str(config["task"]),
        size="cpu" if settings["size"] == "auto" else settings["size"],
        precision=settings["precision"],
        accumulation=settings["accumulation"],
        languages=ON_CPU,
    )
    initial = [read_candidate(path, "initial") for path in config["initial"]]
    warm = _elites_of(config["warm_start"], config["store"]["path"])
    seeds = tuple(dict.fromkeys((*initial, *warm, *task.seeds)))
    if not seeds:
        raise UsageError(
            f"task {task.name} has no program to start from: give one of yours, "
            "initial=[mine.py] (it may be a plain PyTorch ModelNew with a C++ kernel to improve), "
            "or put some into seeds/ beside the task file. The other remedy, an operator that asks "
            "a language model for the first kernel, is not part of this version"
        )
    return replace(task, seeds=seeds)


def read_baseline(baseline: str) -> dict[str, str]:
    """The opponents that `baseline` asks for: none for `eager`, or the user's file by its name.

    Raises:
        UsageError: a baseline that does not exist, or an unreadable file.
    """
    if baseline == "eager":
        return {}
    if not baseline.startswith(BASELINE_FILE):
        raise UsageError(
            f"baseline={baseline}: it can be eager, or file:mine.py for a file of yours"
        )
    return {baseline: read_candidate(baseline.removeprefix(BASELINE_FILE), "baseline")}


def _elites_of(warm_start: str | None, own_store: str) -> list[str]:
    """Sources of a run's best programs, best first, rendered with their best assignment."""
    if not warm_start:
        return []
    path, _, name = warm_start.rpartition(":")
    path = path or own_store
    if not Path(path).is_file():
        raise UsageError(f"warm_start={warm_start}: there is no database {path}; give FILE.db:RUN")
    with open_store(path) as store:
        return _rendered(store, store.run(name).id)


def _rendered(store: "Store", run: int) -> list[str]:
    elites = sorted(store.slots(run).values(), key=lambda elite: -elite.fitness.value)
    return [render(store.source(elite.program), elite.assignment) for elite in elites]
