"""The facts of an export: its sources, exclusions with reasons, and its files."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.trajectories.exporters.shards import Shard

NAME = "manifest.json"
VERSION = 1
SEARCHES, TASKS = "searches", "tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One run (or folder of tasks) that rows were made of.

    `excluded` is the reason for which all of it is left out; `detail` names the held-out task.
    """

    name: str
    task: str
    task_revision: str
    family: str
    licence: str
    steps: int
    created: str = ""
    excluded: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that an export says about itself; the same for the same runs, settings and versions.

    Attributes:
        exporter: version of the package that wrote it.
        format: name of the trainer's format.
        recipe: name and version.
        made_of: `searches`, or `tasks` that has not been searched yet.
        sources: of the rows.
        models: rows by the models that answered in them; a row of several counts for each.
        devices: rows by the devices that judged them, likewise.
        excluded: steps by the reason for which they were left out.
        removed: by view, rows or steps that the recipe left out, by filter.
        rows: by view and split.
        outcomes: by view, rows by the kind of their programs: a gain, a first correct version, a
            repair.
        columns: of every view.
        test_families: of the test split.
        held_out: the requests to hold out.
        held_out_by_graph: whether tasks were recognised by the graphs that they compute, too.
        near_misses: tasks that were kept although they are close to a held-out one.
        notices: messages for the user.
        shards: the files, with digests.
        version: of this file's layout.
    """

    exporter: str
    format: str
    recipe: str
    sources: tuple[Source, ...]
    made_of: str = SEARCHES
    models: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    excluded: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    test_families: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    held_out_by_graph: bool = False
    near_misses: tuple[Mapping[str, Any], ...] = ()
    notices: tuple[str, ...] = ()
    shards: tuple[Shard, ...] = ()
    version: int = VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a finished export.

    Raises:
        UsageError: the folder is none, or of another version of this project.
    """
    try:
        data: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"{folder} is no finished export: it has no {NAME}. If the export was stopped, run the "
            "same command again"
        ) from error
    if data.get("version") != VERSION:
        raise UsageError(
            f"{folder} has a manifest of version {data.get('version')}, this release reads "
            f"{VERSION}; export it again"
        )
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    fields["sources"] = tuple(Source(**one) for one in data["sources"])
    fields["shards"] = tuple(Shard(**one) for one in data["shards"])
    return Manifest(**fields)
