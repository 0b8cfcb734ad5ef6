"""Suites: many tasks under one name, read from where a user has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evolve.core.task import Case


@dataclass(frozen=True, slots=True)
class Problem:
    """One task of a suite.

    Attributes:
        spec: the value of `task=`, `SUITE:LABEL` as a rule.
        label: how the suite calls it, such as `1/40` or `softmax`.
        title: a short description.
        level: of difficulty, as in the suite; empty if it has none.
    """

    spec: str
    label: str
    title: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class TaskText:
    """One task of a suite: the text of its file, and its extras.

    Attributes:
        source: a module of the KernelBench convention.
        category: the kind of task; empty if the suite gives none.
        cases: shapes that it is judged and timed at; none for those of the file.
        seeds: sources of programs that solve it.
    """

    source: str
    category: str = ""
    cases: tuple[Case, ...] = ()
    seeds: tuple[str, ...] = ()


class Suite(Protocol):
    """A reader of one suite. It reads files as text and executes none of them.

    Attributes:
        name: `evolve bench suite=NAME`; its tasks are `task=NAME:LABEL`.
        variable: environment variable with the folder of the user's checkout; empty for a suite
            that needs none.
        levels: those that `evolve bench` takes if none is named; empty for all.
    """

    name: str
    variable: str
    levels: tuple[str, ...]

    def problems(self, checkout: Path | None) -> Sequence[Problem]:
        """All problems in the suite's own order.

        Args:
            checkout: the folder; None takes it from `variable`.

        Raises:
            UsageError: there is no such checkout.
        """
        ...

    def task(self, label: str, checkout: Path | None) -> TaskText:
        """One task.

        Raises:
            UsageError: no such checkout, or no problem of this label; the message names a remedy.
        """
        ...
