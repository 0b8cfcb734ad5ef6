"""The way of a new run: task, judge, audit, row in the database, search."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.cli import parts
from evolve.cli.differences import refuse_differences
from evolve.cli.dry_run import audit_lines
from evolve.cli.inputs import load_task, read_baseline
from evolve.cli.session import search
from evolve.core.errors import UsageError
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from evolve.store import RunRow, Store


async def launch(config: Mapping[str, Any]) -> int:
    """Search as `config` says.

    Returns:
        The exit status: 0 finished, 75 stopped and resumable.
    """
    task = load_task(config)
    opponents = read_baseline(config["baseline"])
    existing = _existing(config)
    if existing is None:
        parts.build_all(config)  # what is wrong with a setting is said before minutes of work
    evaluator = await parts.start_evaluator(config)
    try:
        if existing is None:
            await audit(evaluator, task)
        with Store.open(config["store"]["path"], create=True) as store:
            for notice in store.notices:
                print(notice)
            recorded = {**config, "opponents": opponents}
            run = _row(store, recorded, task, existing)
            print(f"run {run.name} in {store.path}")
            return await search(store, run, recorded, evaluator)
    finally:
        await evaluator.close()


async def audit(evaluator: Evaluator, task: Task) -> None:
    """Say so where something that computes nothing passes the task's check."""
    if not isinstance(evaluator, LocalEvaluator):
        return
    findings = await evaluator.audit(task)
    if findings:
        print(*audit_lines(task, findings), sep="\n")


def _existing(config: Mapping[str, Any]) -> str | None:
    """The name of the stored run to continue; None where a new one is to be made."""
    name, path = config["name"], config["store"]["path"]
    if name is None or not Path(path).is_file() or config["on_exists"] == "new":
        return None
    with Store.open(path, read_only=True) as store:
        if name not in {run.name for run in store.runs()}:
            return None
    if config["on_exists"] == "error":
        raise UsageError(
            f"name={name}: {path} holds a run of this name; continue it with on_exists=resume, "
            "or start another beside it with on_exists=new"
        )
    return str(name)


def _row(store: Store, config: Mapping[str, Any], task: Task, existing: str | None) -> RunRow:
    if existing is not None:
        run = store.run(existing)
        if run.task.revision != task.revision:
            raise UsageError(
                f"name={run.name} on_exists=resume: task {task.name} is not what the run was "
                "started with; give the run another name"
            )
        refuse_differences(run, config)
        return run
    return store.create_run(
        name=_free_name(store, config["name"] or task.name, numbered=config["name"] is None),
        task=task,
        config=config,
        seed=config["seed"],
    )


def _free_name(store: Store, stem: str, *, numbered: bool) -> str:
    """`stem`, or `stem-2`, ... where that is taken; `stem-1` where nobody chose a name."""
    taken = {run.name for run in store.runs()}
    stem = stem.replace("/", "-").replace(":", "-")
    names = ([] if numbered else [stem]) + [f"{stem}-{n}" for n in range(1, len(taken) + 2)]
    return next(name for name in names if name not in taken)
