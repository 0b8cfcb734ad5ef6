"""The way of a new run: task, judge, audit, row in the database, search."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.cli import parts
from evolve.cli.differences import refuse_differences
from evolve.cli.dry_run import audit_lines
from evolve.cli.inputs import load_task, read_baseline, with_seeds
from evolve.cli.session import search
from evolve.core.errors import UsageError
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from evolve.report.audit import Findings, findings_of
from evolve.store import RunRow, Store


async def launch(config: Mapping[str, Any]) -> int:
    """Search as `config` says.

    Returns:
        The exit status: 0 finished, 75 stopped and resumable.
    """
    # Everything that can be wrong with the words is said before minutes of work.
    _check_place(Path(config["store"]["path"]))
    existing = _existing(config)
    task = load_task(config)
    recorded = {**config, "opponents": read_baseline(config["baseline"])}
    if existing is None:
        task = with_seeds(task, config)
    else:
        _refuse_another(existing, task, recorded)
    parts.build_all(config)
    evaluator = await parts.start_evaluator(config)
    try:
        recorded["audit"] = (
            findings_of(existing.config) if existing else await audit(config, evaluator, task)
        )
        with Store.open(config["store"]["path"], create=True) as store:
            for notice in store.notices:
                print(notice)
            run = existing or _create(store, recorded, task)
            print(f"run {run.name} in {store.path}")
            return await search(store, run, recorded, evaluator)
    finally:
        await evaluator.close()


async def audit(config: Mapping[str, Any], evaluator: Evaluator, task: Task) -> Findings:
    """What computes nothing and passes the task's check all the same; said, and kept with the run.

    Replay has no device to find that out on: what was found when the recorded run began holds.
    """
    findings: Findings
    if isinstance(evaluator, LocalEvaluator):
        print(f"auditing the task {task.name} ...", flush=True)
        findings = await evaluator.audit(task)
    else:
        with Store.open(config["store"]["path"], read_only=True) as store:
            findings = findings_of(store.run(config["device"]["run"]).config)
    if findings:
        print(*audit_lines(task, findings), sep="\n")
    return findings


def _check_place(path: Path) -> None:
    """Raise UsageError where the database cannot be, without creating anything yet."""
    if path.is_dir():
        raise UsageError(f"store.path={path} is a folder; name a file in it, e.g. runs/evolve.db")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise UsageError(f"store.path={path}: {above} is not a folder; choose another path")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise UsageError(f"store.path={path}: it cannot be written there; choose another path")


def _existing(config: Mapping[str, Any]) -> RunRow | None:
    """The stored run to continue; None where a new one is to be made."""
    name, path = config["name"], config["store"]["path"]
    if name is None and config["on_exists"] == "resume":
        raise UsageError(
            "on_exists=resume needs the name of the run to continue: add name=..., or use "
            "`evolve resume`, which takes the newest"
        )
    if name is not None and not re.fullmatch(r"\w[\w.+-]*", name):
        raise UsageError(f"name={name}: a run's name has letters, digits and _ . + - only")
    if name is None or not Path(path).is_file() or config["on_exists"] == "new":
        return None
    with Store.open(path, read_only=True) as store:
        run = next((run for run in store.runs() if run.name == name), None)
    if run is not None and config["on_exists"] == "error":
        raise UsageError(
            f"name={name}: {path} holds a run of this name; continue it with on_exists=resume, "
            "or start another beside it with on_exists=new"
        )
    return run


def _refuse_another(run: RunRow, task: Task, config: Mapping[str, Any]) -> None:
    """Raise UsageError where the words describe another run than the stored one."""
    refuse_differences(run, config)
    if run.task.revision != task.revision:
        raise UsageError(
            f"name={run.name} on_exists=resume: the task {task.name} has changed since the run "
            "was started; give the new run another name"
        )


def _create(store: Store, config: Mapping[str, Any], task: Task) -> RunRow:
    name, stem = config["name"], re.sub(r"[^\w.+-]", "-", task.name)
    return store.create_run(
        name=_free_name(store, name or stem, numbered=name is None),
        task=task,
        config=config,
        seed=config["seed"],
    )


def _free_name(store: Store, stem: str, *, numbered: bool) -> str:
    """`stem`, or `stem-2`, ... where that is taken; `stem-1` where nobody chose a name."""
    taken = {run.name for run in store.runs()}
    names = ([] if numbered else [stem]) + [f"{stem}-{n}" for n in range(1, len(taken) + 2)]
    return next(name for name in names if name not in taken)
