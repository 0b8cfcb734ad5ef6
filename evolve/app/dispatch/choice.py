"""Which programs of a run serve which of its workloads."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evolve.core.evaluation import CaseResult
from evolve.core.measurement import Ratio
from evolve.core.program import Assignment, instance_digest

PENALTY = 0.01
"""Gain (relative, of the weighted geometric mean) that each program after the first has to add."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """A program of the archive: the text of its best instance, and its speedups by case."""

    program: str  # digest
    assignment: Assignment
    sequence: int
    source: str
    ratios: Mapping[str, Ratio]

    @property
    def instance(self) -> str:
        return instance_digest(self.program, self.assignment)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Cases whose calls have one signature: equal shapes and dtypes. `weight` is that of all."""

    signature: str
    cases: tuple[CaseResult, ...]

    @property
    def weight(self) -> float:
        return math.fsum(case.weight for case in self.cases)

    @property
    def names(self) -> str:
        return ", ".join(case.name for case in self.cases)


@dataclass(frozen=True, slots=True)
class Choice:
    """The programs of a set, the best single one first, and the program of each workload."""

    programs: tuple[Contender, ...]
    served_by: Mapping[Workload, Contender]

    def number(self, workload: Workload) -> int:
        """The place of a workload's program in `programs`."""
        return self.programs.index(self.served_by[workload])


def choose(
    contenders: Sequence[Contender],
    workloads: Sequence[Workload],
    *,
    penalty: float = PENALTY,
    fit: Callable[[Sequence[Contender]], bool] = lambda programs: True,
) -> Choice:
    """The fewest programs that reach the best weighted geometric mean, less the penalty.

    Starts from the program that is best over all workloads, and adds the one that gains most. A
    workload changes to another program only if that is faster there by a whole interval, so that
    programs within each other's noise are one.

    Args:
        contenders: timed in every case of every workload; one at least.
        workloads: that are timed.
        penalty: relative gain that a further program has to add.
        fit: whether programs can stand in one module.
    """
    chosen = [max(contenders, key=lambda one: _mean(one, workloads))]
    while True:
        rest = [one for one in contenders if one not in chosen and fit([*chosen, one])]
        best = max(rest, key=lambda one: _gain(chosen, one, workloads), default=None)
        if best is None or _gain(chosen, best, workloads) <= math.log1p(penalty):
            return _choice(chosen, workloads)
        chosen.append(best)


def ratio_in(one: Contender, workload: Workload) -> Ratio:
    """A program's speedup in a workload: the weighted geometric mean over its cases."""
    logs = [one.ratios[case.name].log() for case in workload.cases]
    shares = [case.weight / workload.weight for case in workload.cases]
    pairs = list(zip(shares, logs, strict=True))
    value = math.fsum(share * log.value for share, log in pairs)
    below = math.hypot(*(share * (log.value - log.low) for share, log in pairs))
    above = math.hypot(*(share * (log.high - log.value) for share, log in pairs))
    return Ratio(math.exp(value), math.exp(value - below), math.exp(value + above))


def _mean(one: Contender, workloads: Sequence[Workload]) -> float:
    """Natural log of the weighted geometric mean."""
    total = math.fsum(workload.weight for workload in workloads)
    logs = (each.weight * math.log(ratio_in(one, each).value) for each in workloads)
    return math.fsum(logs) / total


def _gain(chosen: Sequence[Contender], other: Contender, workloads: Sequence[Workload]) -> float:
    """The gain in the log of the weighted geometric mean by another program."""
    total = math.fsum(workload.weight for workload in workloads)
    gains = 0.0
    for workload in workloads:
        present = _server(chosen, workload)
        quotient = ratio_in(other, workload) / ratio_in(present, workload)
        gains += workload.weight * math.log(quotient.value) if quotient.is_gain else 0.0
    return gains / total


def _server(chosen: Sequence[Contender], workload: Workload) -> Contender:
    """The first of some programs, or a later one that is faster by a whole interval."""
    best = chosen[0]
    for one in chosen[1:]:
        quotient = ratio_in(one, workload) / ratio_in(best, workload)
        best = one if quotient.is_gain else best
    return best


def _choice(chosen: Sequence[Contender], workloads: Sequence[Workload]) -> Choice:
    served_by = {workload: _server(chosen, workload) for workload in workloads}
    used = tuple(one for one in chosen if one is chosen[0] or one in served_by.values())
    return Choice(used, served_by)
