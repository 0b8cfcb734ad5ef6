"""The extension points: one narrow protocol each, with its contract in the docstring.

Conformance suites for each ship in `evolve.testing`.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, runtime_checkable

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Assignment, Program
from evolve.core.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Elite:
    """A program as archives and selection policies see it: its best strict evaluation, no text.

    `fitness` is the log speedup of the program's best instance (`assignment`). `sequence` is the
    number of the ticket that produced that evaluation and orders events within a run.
    """

    program: str  # digest
    assignment: Assignment
    fitness: Interval
    descriptors: Mapping[str, float | str]
    sequence: int
    operator: str
    parents: tuple[str, ...] = ()


class AddStatus(IntEnum):
    """What became of an offer, ordered and truthy (the idea is pyribs')."""

    NOT_ADDED = 0
    IMPROVED = 1  # took the place of a worse one
    NEW = 2  # took an empty place


@dataclass(frozen=True, slots=True)
class Offer:
    """An archive's answer: the place taken, and the program that lost its place, if any."""

    status: AddStatus
    slot: str | None = None
    evicted: str | None = None  # digest

    def __bool__(self) -> bool:
        return bool(self.status)


@runtime_checkable
class Archive(Protocol):
    """Which programs are kept, and where.

    A pure function of the sequence of offers: the same elites offered in the same order give the
    same slots. Never holds more than `capacity` elites. An offer of a program that the archive
    holds already replaces its elite where the new fitness is higher.
    """

    @property
    def capacity(self) -> int: ...

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not. Never raises because an elite is bad."""
        ...

    def slots(self) -> Mapping[str, Elite]:
        """The elites by slot name."""
        ...

    def restore(self, slots: Mapping[str, Elite]) -> None:
        """Take over slots that `slots()` gave, replacing what is held."""
        ...


class SelectionPolicy(Protocol):
    """Who becomes a parent. Pure in its arguments: same elites, same generator, same parents."""

    def select(self, elites: Sequence[Elite], count: int, rng: random.Random) -> tuple[Elite, ...]:
        """`count` parents, fewer where there are fewer elites; the first is the main parent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A stored instance of a program: its assignment, and what is known of it so far.

    `status` is None while its evaluation is pending; `ratio` is against the fitness baseline.
    """

    assignment: Assignment
    fidelity: Fidelity
    status: Status | None
    ratio: Ratio | None


class Facts(Protocol):
    """Bounded read access to the run's recorded facts, for operators."""

    def source(self, program: str) -> str:
        """The text of a stored program, by digest."""
        ...

    def trials(self, program: str) -> Sequence[Trial]:
        """Every instance of the program that this run asked for, in order, pending ones too."""
        ...

    def proposals(self, operator: str) -> int:
        """How many proposals the operator has made in this run."""
        ...

    def seen(self, instance: str) -> bool:
        """Whether this run holds a proposal of the instance (digest) at any fidelity."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All that an operator may look at."""

    task: Task
    parents: tuple[Elite, ...]
    elites: Sequence[Elite]
    facts: Facts
    rng: random.Random
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One instance to evaluate."""

    program: Program
    assignment: Assignment = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.SEARCH
    parents: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing to propose from this context; the engine asks another operator. Not stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure to produce a program that is worth keeping; stored with the ticket."""

    reason: str


class Operator(Protocol):
    """How a child is made.

    `propose` is pure and stateless: everything it depends on is in the context, so that a resumed
    search asks as if it had never stopped. It never evaluates. `parents` says how many parents it
    wants; with fewer in the archive it declines.
    """

    @property
    def parents(self) -> int: ...

    def propose(self, context: Context) -> Proposal | Declined | Failed: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Recorded state of a run that termination rules decide on; survives resume.

    `evaluations` counts full evaluations, `screens` the cheap ones. `evaluations_at_best` is the
    number of full evaluations when the best fitness last improved by a disjoint interval.
    `usd` is None where a price is unknown.
    """

    proposals: int = 0
    evaluations: int = 0
    screens: int = 0
    device_time_s: float = 0.0
    wall_time_s: float = 0.0
    tokens: int = 0
    usd: float | None = 0.0
    best: Ratio | None = None
    evaluations_at_best: int = 0
    stop_requested: bool = False


class TerminationRule(Protocol):
    """When to stop, and why."""

    def check(self, progress: Progress) -> str | None:
        """The reason to stop now as a phrase, or None to go on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """One instance for the judge. `source` is the rendered text that will be run.

    `instance` is its digest: the key under which the verdict is stored and answered again.
    `opponents` maps names to rendered sources timed in the same interleaved run, e.g. `elite` or
    `file:mine.py`; the fitness baseline `eager` always takes part.
    """

    task: Task
    instance: str
    source: str
    fidelity: Fidelity = Fidelity.SEARCH
    opponents: Mapping[str, str] = field(default_factory=dict)


class Evaluator(Protocol):
    """The judge. Never raises because a kernel is bad.

    Raises:
        EvaluatorUnavailable: the device or the worker cannot be used.
        UsageError: the task itself cannot be judged (does not import, lacks a function, ...).
    """

    @property
    def slots(self) -> int:
        """How many requests may be under way at once."""
        ...

    @property
    def device_class(self) -> str:
        """What kind of device judges, as in `Evaluation.device_class`."""
        ...

    @property
    def evaluator_version(self) -> str:
        """The evaluator's version, as in `Evaluation.evaluator_version`."""
        ...

    async def evaluate(self, request: EvaluationRequest) -> Evaluation: ...

    async def close(self) -> None: ...


def rank(elite: Elite) -> tuple[float, int, str]:
    """Sort key: the highest fitness value first, the earlier one first among equals.

    A total order over the programs of a run, so that what is selected or dropped depends on what
    is held and not on how it came in.
    """
    return -elite.fitness.value, elite.sequence, elite.program


def best_of(elites: Iterable[Elite]) -> Elite | None:
    """The first elite by `rank`."""
    return min(elites, key=rank, default=None)
