"""The tasks that a request may name. No path of a request is ever opened."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.core.source.normalise import normalised_digest
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.tasks.shipped import shipped_names
from evolve.tasks.suites.kernelbench import PREFIX

_PROBLEM = re.compile(rf"{PREFIX}\d{{1,4}}/\d{{1,6}}")


class Setup(NamedTuple):
    """How a task is set up; `size` None takes the server's."""

    size: str | None = None
    precision: str = "task"
    accumulation: str = "ieee"


class Catalogue:
    """The tasks that ship, those that the operator of the server adds, and KernelBench's.

    Args:
        added: values of `evolve run task=...`, or folders of task files.
        size: gives the size of tasks whose request names none; called with the first of these.
        any_reference: whether the text of a reference that is none of these is taken too; it is
            executed by the judge, outside of the sandbox.

    Raises:
        UsageError: one of the added tasks does not exist, or has the name of another.
    """

    def __init__(
        self, added: Sequence[str], *, size: Callable[[], str], any_reference: bool = False
    ) -> None:
        self.any_reference = any_reference
        self._size = size
        self._found: dict[tuple[str, Setup], Task] = {}
        self._specs = {name: name for name in shipped_names()}
        for spec in _unfolded(added):
            name = find_task(spec).name
            if name in self._specs:
                raise UsageError(f"tasks: {spec} has the name of another, {name}; rename its file")
            self._specs[name] = spec
        self._by_text = {
            normalised_digest(find_task(spec).source): name for name, spec in self._specs.items()
        }

    @property
    def names(self) -> list[str]:
        return sorted(self._specs)

    def spec(self, name: str) -> str:
        """The value of `task=...` that stands for a name.

        Raises:
            UsageError: there is no such task.
        """
        spec = self._specs.get(name, name if _PROBLEM.fullmatch(name) else None)
        if spec is None:
            raise UsageError(
                f"task {name!r}: this server has no task of that name; its list of tasks has "
                "those that there are"
            )
        return spec

    def find(self, name: str, setup: Setup) -> Task:
        """A task by its name, as its file was when it was first asked for.

        Raises:
            UsageError: there is none, or it has no such size.
        """
        spec = self.spec(name)
        if (name, setup) not in self._found:
            found = find_task(
                spec,
                size=setup.size or self._size(),
                precision=setup.precision,
                accumulation=setup.accumulation,
            )
            self._found[name, setup] = replace(found, name=name, seeds=())
        return self._found[name, setup]

    def by_text(self, text: str, setup: Setup) -> Task:
        """The task whose reference says the same as a text, layout and comments apart.

        Raises:
            UsageError: there is none, and other references are not taken here.
        """
        if (name := self._by_text.get(normalised_digest(text))) is not None:
            return self.find(name, setup)
        if not self.any_reference:
            raise UsageError(
                "reference: it is none of this server's tasks; have it started with "
                "tasks=[FOLDER] that holds it, or with references=any if holders of the token "
                "may run code there"
            )
        return Task(
            name=f"reference-{framed_digest(text)[:12]}",
            source=text,
            size=setup.size or self._size(),
            precision=setup.precision,
            accumulation=setup.accumulation,
        )


def _unfolded(specs: Sequence[str]) -> list[str]:
    """The specs, with folders of task files as the files in them."""
    found = []
    for spec in specs:
        folder = Path(spec)
        if folder.is_dir() and not (folder / "task.py").is_file():
            found += [str(path) for path in sorted(folder.glob("*.py"))]
        else:
            found.append(spec)
    return found
