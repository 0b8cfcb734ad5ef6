"""Exports of stored runs, and what is in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.core.task import Task
from evolve.store import Store
from evolve.trajectories.exporters.export import Plan, export
from evolve.trajectories.exporters.formats import find_format
from evolve.trajectories.exporters.manifest import Manifest
from evolve.trajectories.loading import load_dataset
from evolve.trajectories.views.recipes import find_recipe
from tests.trajectories.searched import Searched, verdict

ROOT = Path(__file__).parents[2]
SOFTMAX = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


ROWS = 64


def get_inputs():
    return [torch.rand(ROWS, 32)]


def get_init_inputs():
    return []
"""


def exported(
    search: Searched,
    folder: Path,
    target: str = "trl-sft",
    recipe: str = "kernel_smith@2",
    *,
    searches: Sequence[Searched] = (),
    **plan: Any,
) -> Manifest:
    whole = Plan(format=find_format(target), recipe=find_recipe(recipe), **plan)
    runs = [one.run for one in searches or (search,)]
    return export(search.store, runs, folder, whole, lambda *_: None)


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def steps(folder: Path, view: str = "supervised", split: str = "train") -> list[int]:
    return [int(row["step_id"].partition(":")[2]) for row in load_dataset(folder, view, split)]


def run_on(store: Store, name: str, source: str, **task: Any) -> Searched:
    search = Searched(store, name, Task(name=name, source=source, **task))
    search.model("A", verdict(1.5, task=search.task))
    return search
