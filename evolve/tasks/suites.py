"""Suites: many tasks under one name."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.tasks.kernelbench import PREFIX, list_problems
from evolve.tasks.shipped import shipped_names

KERNELBENCH, SHIPPED = "kernelbench", "shipped"
SUITES = (KERNELBENCH, SHIPPED)
LEVELS = (1, 2, 3)
"""Of KernelBench: those that its papers report on; the fourth are whole models."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One task of a suite.

    Attributes:
        spec: what `task=` takes.
        level: of difficulty, as in the suite; empty where it has none.
        name: within its level.
        title: what it is, in a word.
    """

    spec: str
    level: str
    name: str
    title: str

    @property
    def label(self) -> str:
        """How people call it within the suite: `1/40`, or a name."""
        return f"{self.level}/{self.name}" if self.level else self.name


def suite_problems(
    suite: str,
    *,
    path: str | None = None,
    levels: Sequence[int] = (),
    only: Sequence[str] = (),
) -> list[Problem]:
    """The problems of a suite in its own order.

    Args:
        suite: of `SUITES`.
        path: a checkout of KernelBench; None takes it from KERNELBENCH_PATH.
        levels: of KernelBench; empty for `LEVELS`.
        only: labels of problems (`1/40`, `softmax`); empty for all.

    Raises:
        UsageError: no such suite, checkout, level or problem.
    """
    if suite not in SUITES:
        raise UsageError(f"suite={suite}: there is no such suite; choose of {', '.join(SUITES)}")
    if suite == SHIPPED:
        if levels or path:
            raise UsageError("suite=shipped has neither level nor path; leave them out")
        found = [Problem(name, "", name, name) for name in shipped_names()]
    else:
        found = _of_kernelbench(path, levels, only)
    if not only:
        return found
    known = {problem.label: problem for problem in found}
    for label in only:
        if label not in known:
            close = difflib.get_close_matches(label, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"e.g. {next(iter(known), 'none')}"
            raise UsageError(f"problems=[{label}]: suite={suite} has no such problem; {hint}")
    return [problem for problem in found if problem.label in only]


def _of_kernelbench(path: str | None, levels: Sequence[int], only: Sequence[str]) -> list[Problem]:
    there = list_problems(path)
    known = {level for level, _, _ in there}
    for level in levels:
        if level not in known:
            raise UsageError(f"level=[{level}]: there is none in the checkout; it has {known}")
    wanted = tuple(levels) or (known if only else LEVELS)
    return [
        Problem(f"{PREFIX}{level}/{number}", str(level), str(number), title)
        for level, number, title in there
        if level in wanted
    ]
