"""Programs as a search keeps them: elites, their results as parents, and all that are held."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from evolve.core.measurement import Interval
from evolve.core.program import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Elite:
    """A program as archives and selection policies see it: its best strict instance, no text.

    `fitness` is the log speedup of that instance (`assignment`), pooled over its `evaluations` at
    full fidelity; the best instance is the one with the highest pooled value. `sequence` is the
    number of the ticket that evaluated it first, and `operator` made that; `tunings` of the tickets
    up to that one were tunings, which `step` leaves out. `parents` are those of
    the ticket that made the program, so never the program itself. If later evaluations have
    refuted every instance, recorded events have the last one with 0 evaluations; archives and
    policies never see such an elite.
    """

    program: str  # digest
    assignment: Assignment
    fitness: Interval
    descriptors: Mapping[str, float | str]
    sequence: int
    operator: str
    parents: tuple[str, ...] = ()
    evaluations: int = 1
    tunings: int = 0

    @property
    def step(self) -> int:
        """The number of its step: as if nothing had been tuned. A tuning has that before it."""
        return self.sequence - self.tunings


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Results of a program as a parent: recorded counts, the same after a resume.

    A ticket counts for its main parent, the first program that was selected for it; the ticket that
    made a program is therefore not in the program's own counts. The subtree of a program are the
    tickets of the program and of all that descends from it along main parents; a ticket is counted
    at its main parent and at most 64 further ancestors.

    Attributes:
        asked: tickets of the program, those under way too.
        told: tickets of the program that are finished.
        failed: of these, without a program that counts: none at all, a duplicate, a wrong one, one
            without kernels of its own. Failures by our own fault are not counted here.
        subtree: finished tickets in the subtree.
        scored: of these, with a fitness (a full, strict evaluation).
        value: sum of the fitness values of the scored ones.
        best: highest fitness value, as known by now, of the programs that they made or tuned; None
            without any. It falls if that program is measured again, or refuted.
        stale: finished tickets of the subtree since `best` last rose.
        pending: tickets of the subtree that are under way.
    """

    asked: int = 0
    told: int = 0
    failed: int = 0
    subtree: int = 0
    scored: int = 0
    value: float = 0.0
    best: float | None = None
    stale: int = 0
    pending: int = 0


class Population(Sequence[Elite]):
    """The content of an archive, as selection policies see it: a sequence of elites, best first.

    Every program once, also if it holds several slots. The mappings and sequences that it gives
    are not to be changed, nor to be kept.

    Attributes:
        ranked: the elites, best first.
    """

    ranked: Sequence[Elite]

    @overload
    def __getitem__(self, index: int) -> Elite: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Elite]: ...

    def __getitem__(self, index: int | slice) -> Elite | Sequence[Elite]:
        return self.ranked[index]

    def __len__(self) -> int:
        return len(self.ranked)

    def __iter__(self) -> Iterator[Elite]:
        return iter(self.ranked)

    @property
    @abstractmethod
    def turn(self) -> int:
        """The number of the step that parents are selected for: of the ticket, without tunings."""

    @property
    @abstractmethod
    def islands(self) -> Mapping[str, Sequence[Elite]]:
        """Elites by the part of their slots' names before the first `/`, best first.

        In the order of these names, islands without an elite left out. One island `""` if slots
        have no such part.
        """

    @abstractmethod
    def elite(self, program: str) -> Elite | None:
        """The elite of a program; None if it is not held."""

    @abstractmethod
    def slot(self, program: str) -> str:
        """The slot of a held program, the first by name if it has several."""

    @abstractmethod
    def visits(self, program: str) -> Visits:
        """Results of a held program as a parent."""

    @abstractmethod
    def children(self, program: str) -> Sequence[Elite]:
        """Held elites whose nearest held ancestor along main parents is this one, oldest first."""

    @property
    @abstractmethod
    def roots(self) -> Sequence[Elite]:
        """Held elites with no held ancestor (within 64 generations), oldest first."""


def rank(elite: Elite) -> tuple[float, int, str]:
    """Sort key: the highest fitness value first, the earlier one first among equals.

    A total order over the programs of a run, so that selection depends on the programs held and not
    on their order of arrival.
    """
    return -elite.fitness.value, elite.sequence, elite.program


def best_of(elites: Iterable[Elite]) -> Elite | None:
    """The first elite by `rank`."""
    return min(elites, key=rank, default=None)
