"""The tasks that ship with this package, as a suite: `evolve bench suite=shipped`."""

from collections.abc import Sequence
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.suites import Problem, TaskText
from evolve.tasks.files import read_task
from evolve.tasks.shipped import library_folder, shipped_names


class Shipped:
    """Tasks are named without the suite: `task=softmax`."""

    name = "shipped"
    variable = ""
    levels: tuple[str, ...] = ()

    def problems(self, checkout: Path | None) -> Sequence[Problem]:
        return [Problem(spec=name, label=name, title=name) for name in shipped_names()]

    def task(self, label: str, checkout: Path | None) -> TaskText:
        if label not in shipped_names():
            raise UsageError(f"task {label}: no such task ships. Take one of `evolve tasks`.")
        return read_task(library_folder() / label / "task.py")
