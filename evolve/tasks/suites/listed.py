"""What most suites have in common: tasks that are found in a checkout, each at a path."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse
from evolve.core.suites import Problem, TaskText
from evolve.core.task import Case
from evolve.tasks.suites.checkout import CheckoutSuite, read_data

MOST_TIMED = 6  # workloads of a task that are timed; the others are checked
HELPERS = "from evolve.testing.suite_tasks import"
Constants: TypeAlias = Mapping[str, int | float | str]


class ListedSuite(CheckoutSuite):
    """A suite whose tasks have one path each: a file or a folder."""

    def problems(self, checkout: Path | None) -> list[Problem]:
        return [
            Problem(f"{self.name}:{label}", label, label, self._level(label, path))
            for label, path in self._found(self._root(checkout)).items()
        ]

    def task(self, label: str, checkout: Path | None) -> TaskText:
        return self._task(label, self._path(label, self._root(checkout)))

    def _path(self, label: str, root: Path) -> Path:
        found = self._found(root)
        if label not in found:
            raise UsageError(
                f"task {self.name}:{label}: no such problem. `evolve tasks list --suite "
                f"{self.name}` shows all."
            )
        return found[label]

    def _found(self, root: Path) -> dict[str, Path]:
        """The path of each task by its label, in the suite's order."""
        raise NotImplementedError

    def _level(self, label: str, path: Path) -> str:
        """The folder of a label."""
        return label.rpartition("/")[0]

    def _task(self, label: str, path: Path) -> TaskText:
        raise NotImplementedError


def read_module(path: Path) -> tuple[str, ast.Module]:
    """The text of a Python file of a checkout, and its tree.

    Raises:
        UsageError: it cannot be read, or is not valid Python.
    """
    text = read_data(path)
    try:
        return text, parse(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is not valid Python ({error}).") from error


def defined(tree: ast.Module) -> set[str]:
    """Names that a module's statements define or assign."""
    names = set()
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign() | ast.AnnAssign():
                stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
                names |= {node.id for node in stored if isinstance(node.ctx, ast.Store)}
    return names


def require_defined(path: Path, tree: ast.Module, *names: str) -> None:
    """UsageError if a module of a checkout lacks one of the names."""
    if missing := [name for name in names if name not in defined(tree)]:
        raise UsageError(
            f"{path} defines no {' and no '.join(missing)}: its harness calls more than one "
            "function of tensors."
        )


def timed_cases(workloads: Mapping[str, tuple[Constants, float]]) -> Iterator[Case]:
    """All are checked; a few, from small to large, are timed, each for as many as it stands for.

    Args:
        workloads: by the name of each, the constants of its case, and a number that grows with
            its size.
    """
    order = sorted(workloads, key=lambda name: workloads[name][1])
    count = min(MOST_TIMED, len(order))
    timed = {order[(2 * number + 1) * len(order) // (2 * count)] for number in range(count)}
    for name, (constants, _) in workloads.items():
        weight = len(order) / count if name in timed else 1.0
        yield Case(name=name, constants=constants, weight=weight, timed=name in timed)
