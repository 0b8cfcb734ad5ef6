"""What a configuration names and a run must hold for ever: task, programs, the user's baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.cli.compiled import require_start, variants
from evolve.cli.device import LANGUAGES, kind_of, require_language
from evolve.cli.flags import open_store, read_candidate
from evolve.cli.parts import build_archive
from evolve.core.errors import UsageError
from evolve.core.normalise import normalised_digest
from evolve.core.protocols import BASELINES, rank
from evolve.core.task import Task
from evolve.core.tunables import parse, render
from evolve.search.projection import project
from evolve.tasks import find_task

BASELINE_FILE = "file:"
WARM = 20  # how many of another run's elites a warm start tries
SIZE_ON = {"cpu": "cpu", "cuda": "gpu"}  # of a task, where `task_config.size` is auto


def load_task(config: Mapping[str, Any]) -> Task:
    """The task that `task` and `task_config` name, with its own seeds.

    Raises:
        UsageError: no such task, or an unreadable file.
    """
    settings, kind = config["task_config"], kind_of(config)
    return find_task(
        str(config["task"]),
        size=SIZE_ON[kind] if settings["size"] == "auto" else settings["size"],
        precision=settings["precision"],
        accumulation=settings["accumulation"],
        languages=LANGUAGES[kind],
    )


def with_seeds(task: Task, config: Mapping[str, Any]) -> Task:
    """The task with all that a new run starts from, in the order of trying.

    That is the user's programs, another run's best ones, and the task's own; of those that differ
    in comments, layout or tunable values only, the first. They are stored with the run, so that a
    resume needs no file of them.

    Raises:
        UsageError: a file that is no candidate, no such run, or nothing to start from.
    """
    kind = kind_of(config)
    initial = [_read_program(path, "initial", kind) for path in config["initial"]]
    warm = _elites_of(config, task)
    seeds = _without_twins((*initial, *warm, *task.seeds))
    task = replace(task, seeds=seeds)
    if not variants(task, config):
        require_start(task, config)
    return task


def _without_twins(sources: Sequence[str]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for source in sources:
        first.setdefault(normalised_digest(source), source)
    return tuple(first.values())


def _read_program(path: str, what: str, kind: str) -> str:
    source = read_candidate(path, what)
    require_language(source, f"{what} {path}", kind)
    if "ModelNew" not in source:
        raise UsageError(f"{what} {path} defines no ModelNew; rename its module class to ModelNew")
    try:
        parse(source)
    except UsageError as error:
        raise UsageError(f"{what} {path}: {error}") from error
    return source


def read_baseline(baseline: str, kind: str) -> dict[str, str]:
    """The opponents that `baseline` asks for: none for `eager`, or the user's file by its name.

    Another way to run the reference is an opponent without a text.

    `kind` is that of the device, `cpu` or `cuda`.

    Raises:
        UsageError: a baseline that does not exist, or a file that is no program.
    """
    if baseline == "eager":
        return {}
    if baseline in BASELINES:
        return {baseline: ""}
    if not baseline.startswith(BASELINE_FILE) or baseline == BASELINE_FILE:
        raise UsageError(
            f"baseline={baseline}: it can be eager, {', '.join(BASELINES)}, "
            "or file:mine.py for a file of yours"
        )
    return {baseline: _read_program(baseline.removeprefix(BASELINE_FILE), "baseline", kind)}


def _elites_of(config: Mapping[str, Any], task: Task) -> list[str]:
    """Sources of another run's elites, best first, rendered with their best assignment.

    They are those that this run's archive would hold if it had watched that run from its start, so
    that a search may be switched: `warm_start=RUN search=other`.
    """
    warm_start = config["warm_start"]
    if warm_start is None:
        return []
    path, _, name = warm_start.rpartition(":")
    if not name:
        raise UsageError(f"warm_start={warm_start}: it names no run; give RUN or FILE.db:RUN")
    path = path or config["store"]["path"]
    if not Path(path).is_file():
        raise UsageError(f"warm_start={warm_start}: there is no database {path}; give FILE.db:RUN")
    archive = build_archive(config)
    with open_store(path) as store:
        run = store.run(name)
        if task.name != run.task.name and task.revision != run.task.revision:
            raise UsageError(
                f"warm_start={warm_start}: that run is of the task {run.task.name}, this one of "
                f"{task.name}, where its programs mean nothing; name a run of {task.name}"
            )
        held = {elite.program: elite for elite in project(store, run, archive).slots().values()}
        elites = sorted(held.values(), key=rank)[:WARM]
        return [render(store.source(elite.program), elite.assignment) for elite in elites]
