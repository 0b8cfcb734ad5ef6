"""Inputs that a configuration names and a run must keep: task, programs, the user's baseline."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evolve.app.cluster import cluster_of
from evolve.app.compiler_seeds import require_start, variants, wanted
from evolve.app.components import asks_models, build_archive, build_operators
from evolve.app.database import location_of, open_store
from evolve.app.device import kind_of, require_language, require_runnable
from evolve.core.devices import device_kind, kind_of_class
from evolve.core.errors import UsageError
from evolve.core.program import without_model
from evolve.core.protocols import BASELINES, Evaluator, rank
from evolve.core.run_store import RunStore
from evolve.core.source.normalise import normalised_digest
from evolve.core.source.tunables import parse, render
from evolve.core.task import Task
from evolve.languages.registry import languages_on
from evolve.search.archive_replay import project
from evolve.store import Judge, RunRow, Store, Ticket
from evolve.tasks import find_task
from evolve.tasks.files import read_text

BASELINE_FILE = "file:"
WARM = 20  # how many of another run's elites a warm start tries


def load_task(config: Mapping[str, Any]) -> Task:
    """The task that `task` and `task_config` name, with its own seeds.

    Raises:
        UsageError: no such task, or an unreadable file.
    """
    settings, kind = config["task_config"], kind_of(config)
    return find_task(
        str(config["task"]),
        size=device_kind(kind).size if settings["size"] == "auto" else settings["size"],
        precision=settings["precision"],
        accumulation=settings["accumulation"],
        languages=languages_on(device_kind(kind)),
    )


def with_seeds(task: Task, config: Mapping[str, Any], *, by_hand: bool = False) -> Task:
    """The task with all that a new run starts from, in the order of trying.

    That is the user's programs, another run's best ones, and the task's own; of those that differ
    in comments, layout or tunable values only, the first. They are stored with the run, so that a
    resume needs no file of them. `by_hand` says that the first program may come from a file that
    answers a prompt.

    Raises:
        UsageError: a file that is no candidate, no such run, or nothing to start from.
    """
    kind = kind_of(config)
    initial = [_read_program(path, "initial", kind) for path in config["initial"]]
    device = config["device"]
    if cluster_of(config) == "none" and device["kind"] != "replay":
        for path, source in zip(config["initial"], initial, strict=True):
            require_runnable(source, f"initial {path}", kind, device["python"])
    warm = _elites_of(config, task)
    seeds = _without_twins((*initial, *warm, *task.seeds))
    task = replace(task, seeds=seeds)
    is_answered = by_hand and asks_models(build_operators(config))
    if not variants(task, config) and not is_answered:
        require_start(task, config)
    return task


def _without_twins(sources: Sequence[str]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for source in sources:
        first.setdefault(normalised_digest(source), source)
    return tuple(first.values())


def _read_program(path: str, what: str, kind: str) -> str:
    source = read_text(Path(path), what)
    require_language(source, f"{what} {path}", kind)
    try:
        parse(source)
    except UsageError as error:
        raise UsageError(f"{what} {path}: {error}") from error
    if missing := without_model(source):
        raise UsageError(f"{what} {path} {missing}")
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
        near = next(iter(get_close_matches(baseline, ("eager", *BASELINES), n=1)), "")
        meant = f"{BASELINE_FILE}{baseline}" if baseline.endswith(".py") else near
        raise UsageError(
            f"baseline={baseline}: {f'did you mean baseline={meant}? ' if meant else ''}"
            f"it can be eager, {', '.join(BASELINES)}, or file:mine.py for a file of yours"
        )
    return {baseline: _read_program(baseline.removeprefix(BASELINE_FILE), "baseline", kind)}


def _elites_of(config: Mapping[str, Any], task: Task) -> list[str]:
    """Sources of another run's elites, best first, rendered with their best assignment.

    They are those that this run's archive would hold if it had watched that run from its start.
    """
    archive = build_archive(config)
    with _warm_run(config, task) as (store, run):
        if store is None or run is None:
            return []
        held = {elite.program: elite for elite in project(store, run, archive).slots().values()}
        elites = sorted(held.values(), key=rank)[:WARM]
        return [render(store.source(elite.program), elite.assignment) for elite in elites]


@contextmanager
def _warm_run(
    config: Mapping[str, Any], task: Task
) -> Iterator[tuple[RunStore, RunRow] | tuple[None, None]]:
    """The run that `warm_start` names, in its open database; nothing if none is named."""
    warm_start = config["warm_start"]
    if warm_start is None:
        yield None, None
        return
    path, _, name = warm_start.rpartition(":")
    if not name:
        raise UsageError(f"warm_start={warm_start}: it names no run; give RUN or FILE.db:RUN")
    path = path or location_of(config)
    if not Store.exists(path):
        raise UsageError(f"warm_start={warm_start}: there is no database {path}; give FILE.db:RUN")
    with open_store(path) as store:
        run = store.run(name)
        if task.name != run.task.name and task.revision != run.task.revision:
            raise UsageError(
                f"warm_start={warm_start}: that run is of the task {run.task.name}, this one of "
                f"{task.name}, where its programs mean nothing; name a run of {task.name}"
            )
        yield store, run


def take_over(
    config: Mapping[str, Any], task: Task, judge: Evaluator | None = None
) -> tuple[Task, Sequence[Ticket]]:
    """The steps that a new run takes over from the one that `warm_start` names.

    Without a `judge` the new run is to have the one of that run, if it is of the kind asked for.

    Told to any archive, they make it what it would be had it watched that run from the start. There
    are none if the verdicts mean something else here (another judge, device or baseline) or are not
    to be reused (`store.reuse`): then elites are among the seeds, and are judged anew.

    Returns:
        The task, without seeds that the steps are about, and the steps.
    """
    with _warm_run(config, task) as (store, run):
        if store is None or run is None or not _means_the_same(run, config):
            return task, ()
        judged_by = judge or judge_of(store, run, config)
        if judged_by is None:
            return task, ()
        steps = store.judged_steps(
            run.id, task.revision, Judge(judged_by.device_class, judged_by.evaluator_version)
        )
    held = {render(p.program.source, p.assignment) for step in steps if (p := step.proposal)}
    return replace(task, seeds=tuple(seed for seed in task.seeds if seed not in held)), steps


def known_of(config: Mapping[str, Any], task: Task) -> tuple[Mapping[str, Any], Task]:
    """The results of the run that `warm_start` names for the same task, which need no judge.

    Returns:
        The configuration with the findings of the task's audit and the cost of its reference, and
        the task with its compiled reference, if the same variants were requested.
    """
    with _warm_run(config, task) as (store, run):
        if store is None or run is None or run.task.revision != task.revision:
            return config, task
        if judge_of(store, run, config) is None:
            return config, task
        if set(wanted(run.config)) == set(wanted(config)):
            task = replace(task, compiled=run.task.compiled)
        known = {name: run.config.get(name) for name in ("audit", "reference")}
        return {**config, **known}, task


def judge_of(store: RunStore, run: RunRow, config: Mapping[str, Any]) -> Judge | None:
    """The device that judged a run, if it is of the kind that `config` asks for."""
    try:
        judge = store.judge(run.id)
    except UsageError:  # nothing is judged yet
        return None
    return judge if kind_of_class(judge.device_class) == kind_of(config) else None


def _means_the_same(run: RunRow, config: Mapping[str, Any]) -> bool:
    measured = ("baseline", "opponents")
    alike = all(run.config.get(name) == config[name] for name in measured)
    return bool(alike and config["store"]["reuse"])
