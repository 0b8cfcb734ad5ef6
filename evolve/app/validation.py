"""Requests, checked: every error in the words is found before minutes of work."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.app import components
from evolve.app.compatibility import refuse_unknown_cases
from evolve.app.config.diff import refuse_differences
from evolve.app.database import location_of
from evolve.app.device import as_judged, kind_of
from evolve.app.inputs import load_task, read_baseline, with_seeds
from evolve.app.team.quotas import refuse_over_quota
from evolve.core.errors import UsageError
from evolve.core.run_store import RunStore
from evolve.core.task import Task
from evolve.store import RunRow, Store
from evolve.store.location import is_server
from evolve.store.tables.runs import check_seed

MAX_NAME = 200  # bytes; file systems take 255, of which suffixes need some


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run to begin, or to continue if it is `existing`.

    `recorded` is the configuration as a new run keeps it, with the sources of its opponents; of an
    existing run, with the kind of device that it has been judged on.
    """

    existing: RunRow | None
    task: Task
    recorded: Mapping[str, Any]


def read_request(
    config: Mapping[str, Any],
    *,
    has_parts: bool = False,
    beside: Sequence[str] = (),
    by_hand: bool = False,
) -> Request:
    """Everything that a search needs but its judge; writes nothing.

    `has_parts` says that the configuration's parts are known to go together: of a hundred runs that
    have the same ones, the first need be asked. Baselines `beside` are timed with every program of
    a new run; a started run keeps its own. `by_hand` says that operators' requests to a model, also
    for the first program, may be answered by files.

    Raises:
        UsageError: the run that `config` describes cannot be.
    """
    check_seed(config["seed"])
    if config["project"] is not None:
        check_name(config["project"], "project")
    _check_place(location_of(config))
    existing = _existing(config)
    refuse_over_quota(config, existing)
    if existing is not None:
        with Store.open(location_of(config), read_only=True) as store:
            config = as_judged(config, store, existing)
    task = load_task(config)
    begun = existing.config.get("opponents", {}) if existing else dict.fromkeys(beside, "")
    opponents = {name: "" for name, text in begun.items() if not text}
    opponents |= read_baseline(config["baseline"], kind_of(config))
    recorded = {**config, "opponents": opponents}
    if existing is None:
        task = with_seeds(task, config, by_hand=by_hand)
    else:
        _refuse_another(existing, task, recorded)
    if not has_parts:
        components.build_all(config, run=existing.name if existing else None, by_hand=by_hand)
    refuse_unknown_cases(config, task)
    return Request(existing=existing, task=task, recorded=recorded)


def _check_place(location: str) -> None:
    """Raise UsageError if the database cannot be, without creating anything yet."""
    if is_server(location):
        Store.open(location, create=True, read_only=True).close()
        return
    path = Path(location)
    if path.is_dir():
        raise UsageError(f"store.path={path} is a folder; name a file in it, e.g. runs/evolve.db")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise UsageError(f"store.path={path}: {above} is not a folder; choose another path")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise UsageError(f"store.path={path}: it cannot be written there; choose another path")
    if path.exists():
        Store.open(path, create=True, read_only=True).close()  # refuses other files


def check_name(name: str, setting: str = "name") -> None:
    """Raise UsageError for invalid names of a run, and so of the files named after it."""
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise UsageError(f"{setting}={name}: it may have letters, digits and _ . + - only")
    if len(name.encode()) > MAX_NAME:
        raise UsageError(
            f"name={name[:40]}...: it has {len(name.encode())} bytes, and files are named after "
            f"the run; choose one of at most {MAX_NAME}"
        )


def _existing(config: Mapping[str, Any]) -> RunRow | None:
    """The stored run to continue; None if a new one is to be made."""
    name, path = config["name"], location_of(config)
    if name is None and config["on_exists"] == "resume":
        raise UsageError(
            "on_exists=resume needs the name of the run to continue: add name=..., or use "
            "`evolve resume`, which takes the newest"
        )
    if name is not None:
        check_name(name)
    if name is None or not Store.exists(path) or config["on_exists"] == "new":
        return None
    with Store.open(path, read_only=True) as store:
        run = _stored(store, name)
    if run is not None and config["on_exists"] == "error":
        raise UsageError(
            f"name={name}: {path} holds a run of this name; continue it with on_exists=resume, "
            "or start another beside it with on_exists=new"
        )
    return run


def _stored(store: RunStore, name: str) -> RunRow | None:
    """One of possibly hundreds of runs, each with its task's text."""
    try:
        return store.run(name)
    except UsageError:
        return None


def _refuse_another(run: RunRow, task: Task, config: Mapping[str, Any]) -> None:
    """Raise UsageError if the words describe another run than the stored one."""
    refuse_differences(run, config)
    if run.task.revision != task.revision:
        raise UsageError(
            f"name={run.name} on_exists=resume: the task {task.name} has changed since the run "
            "was started; give the new run another name"
        )
