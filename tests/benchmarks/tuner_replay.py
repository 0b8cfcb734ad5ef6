"""A tuner's run against a table of times: what it asks for, and how close it comes to the best."""

import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Assignment, Program, TunableValue
from evolve.core.protocols import Context, Elite, Operator, Proposal, Trial
from evolve.core.source import tunables
from evolve.core.task import Task
from operators.local.structure.program import Choices, TritonProgram

_SCREEN_NOISE, _NOISE = 0.01, 0.002  # of a time, as standard deviations


@dataclass(frozen=True)
class Table:
    """Times of the instances of a program in ms; None for one that does not run.

    Attributes:
        source: the program, which declares the choices of the table and no others.
        written: its instance as written.
        times: by the values of its tunables, as `written` has them.
    """

    source: str
    written: Assignment
    times: Mapping[tuple[TunableValue, ...], float | None]

    @classmethod
    def read(cls, rows: Sequence[Mapping[str, Any]], source: str) -> "Table":
        """From rows of a measured table. An instance that is as written stays so where it can."""
        written = tunables.parse(source).defaults
        choices = {
            name: tuple(dict.fromkeys(sorted({row["assignment"][name] for row in rows})))
            for name in written
        }
        near = {
            name: value if value in choices[name] else choices[name][len(choices[name]) // 2]
            for name, value in written.items()
        }
        times = {tuple(row["assignment"][name] for name in near): row["time_ms"] for row in rows}
        if any(
            set(tunable.choices) - {*choices[tunable.name]} for tunable in tunables.parse(source)
        ):
            declared = {name: Choices(value, choices[name]) for name, value in near.items()}
            source = TritonProgram(source).written([], declared)
        return cls(source, near, times)

    @property
    def best(self) -> float:
        return min(time for time in self.times.values() if time is not None)

    def time(self, assignment: Assignment) -> float | None:
        whole = {**self.written, **assignment}
        return self.times.get(tuple(whole[name] for name in self.written))


class Run:
    """A run of one operator on the program of a table; it is all that the operator sees.

    Args:
        table: times.
        seed: of what the operator draws and of the noise of measurements.
        at_once: measurements that are under way, of which the operator knows no more than that.
    """

    def __init__(self, table: Table, seed: int, at_once: int = 1) -> None:
        self.table, self._at_once = table, at_once
        self._under_way: deque[tuple[int, Proposal]] = deque()
        self._rng = random.Random(seed)
        self._program = Program(table.source)
        self._found: list[Trial] = []
        self._seed = seed

    def source(self, program: str) -> str:
        assert program == self._program.digest
        return self._program.source

    def trials(self, program: str) -> Sequence[Trial]:
        assert program == self._program.digest
        return self._found

    @property
    def evaluations(self) -> int:
        """All that was measured: each screen, each full measurement, and the one as written."""
        return 1 + len(self._found) - len(self._under_way)

    @property
    def measured(self) -> list[Trial]:
        return [
            trial
            for trial in self._found
            if trial.fidelity is not Fidelity.SCREEN and trial.status is not None
        ]

    @property
    def gap(self) -> float:
        """By how much the fastest in full measurement is slower than the best of the table.

        Infinite where none that was measured runs.
        """
        measured = [trial.assignment for trial in self.measured if trial.ratio]
        times = [self.table.time(one) for one in (*measured, self.table.written)]
        known = (time for time in times if time is not None)
        return min(known, default=math.inf) / self.table.best - 1

    def step(self, operator: Operator) -> bool:
        """Ask for what may be under way and end what is so longest; False where nothing is."""
        while len(self._under_way) < self._at_once:
            proposal = operator.propose(self._context())
            if not isinstance(proposal, Proposal):
                break
            self._under_way.append((len(self._found), proposal))
            self._found.append(_trial(proposal, None, None))
        if not self._under_way:
            return False
        place, proposal = self._under_way.popleft()
        self._found[place] = self._measured(proposal)
        return True

    @staticmethod
    def _is_full(proposal: object) -> bool:
        return isinstance(proposal, Proposal) and proposal.fidelity is not Fidelity.SCREEN

    def _context(self) -> Context:
        parent = Elite(
            program=self._program.digest,
            assignment=self.table.written,
            fitness=Interval(*[math.log(self._ratio(self.table.written, 0.0) or 1e-3)] * 3),
            descriptors={},
            sequence=0,
            operator="seed",
        )
        return Context(
            task=Task(name="t", source=""),
            parents=(parent,),
            elites=(parent,),
            facts=self,
            rng=random.Random(f"{self._seed} {len(self._found)}"),
            sequence=len(self._found),
        )

    def _measured(self, proposal: Proposal) -> Trial:
        noise = _NOISE if self._is_full(proposal) else _SCREEN_NOISE
        value = self._ratio(proposal.assignment, noise)
        ratio = value and Ratio(value, value * math.exp(-2 * noise), value * math.exp(2 * noise))
        return _trial(proposal, Status.CORRECT if ratio else Status.OOM, ratio or None)

    def _ratio(self, assignment: Assignment, noise: float) -> float | None:
        time = self.table.time(assignment)
        return None if time is None else math.exp(self._rng.gauss(0, noise)) / time


def _trial(proposal: Proposal, status: Status | None, ratio: Ratio | None) -> Trial:
    return Trial(
        assignment=proposal.assignment, fidelity=proposal.fidelity, status=status, ratio=ratio
    )
