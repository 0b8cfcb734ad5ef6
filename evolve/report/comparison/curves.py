"""Best-so-far curves of runs, and statistics over the seeds of one method.

The result that a search would have returned is the instance whose speedup is highest at the lower
end of its interval, over all evaluations that it had by then. So one lucky measurement does not
raise a curve for long, and a curve falls if a new measurement is lower.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import NO_PROPOSALS, Step
from evolve.core.measurement import Interval, Ratio, pooled
from evolve.core.program import instance_digest
from evolve.core.run_store import RunStore
from evolve.report.lineage import speedup
from evolve.store import RunRow
from evolve.store.champion import Champion, champion

AXES = ("evaluations", "proposals", "tokens", "wall_time_s")
"""The axes of curves: attributes of `Spent`."""

ENOUGH = 0.95
"""The coverage that an interval has to have, if there are seeds enough."""

_SAYS_NOTHING = (Status.CORRECT, Status.INFRA, Status.TIMING_UNBOUNDED)  # against a program


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The resources that a search has used, without its last verification. Times in seconds."""

    evaluations: int = 0
    proposals: int = 0
    tokens: int = 0
    device_time_s: float = 0.0
    wall_time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """A change of the result that the search would return; None if everything was refuted."""

    spent: Spent
    best: Ratio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run: its changes in order, its total use, and the basis of its headline."""

    run: RunRow
    points: Sequence[Point]
    total: Spent
    champion: Champion | None

    @property
    def final(self) -> float | None:
        """The champion's speedup; None without a correct program."""
        return None if self.champion is None else self.champion.ratio.value

    def at(self, axis: str, place: float) -> float | None:
        """The speedup at a place of an axis; None before the first correct program."""
        places = [getattr(point.spent, axis) for point in self.points]
        index = bisect_right(places, place)
        best = self.points[index - 1].best if index else None
        return None if best is None else best.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The runs of one method, a seed each."""

    label: str
    curves: Sequence[Curve]

    def extent(self, axis: str) -> float:
        """How far all of the runs have come on an axis."""
        return min(getattr(curve.total, axis) for curve in self.curves)

    def staircase(self, axis: str) -> Iterator[tuple[float, "Spread"]]:
        """The middle of the seeds wherever it may change, as far as all of the runs have come."""
        end = self.extent(axis)
        places = {getattr(point.spent, axis) for curve in self.curves for point in curve.points}
        for place in sorted({*(place for place in places if place < end), end}):
            found = spread([curve.at(axis, place) for curve in self.curves])
            if found.value is not None:
                yield place, found

    @property
    def final(self) -> "Spread":
        """The median of the runs' final values."""
        return spread([curve.final for curve in self.curves])


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median over seeds with an interval between two of them; None: no correct program.

    `coverage` is the probability that the interval holds the median of all seeds that there could
    be, for any distribution.
    """

    value: float | None
    low: float | None
    high: float | None
    coverage: float


def spread(values: Sequence[float | None]) -> Spread:
    """Median and interval by order statistics, a run without a correct program below all others.

    The narrowest interval between the k-th lowest and the k-th highest value that covers the median
    with 95 %; the whole range if there are too few values (under six) for that.
    """
    ordered = sorted(-math.inf if value is None else value for value in values)
    count = len(ordered)
    ranks = range(1, (count + 1) // 2 + 1)
    rank = max((rank for rank in ranks if _coverage(count, rank) >= ENOUGH), default=1)
    lower, upper = ordered[(count - 1) // 2], ordered[count // 2]
    return Spread(
        value=_known(lower if count % 2 or lower <= 0 else math.sqrt(lower * upper)),
        low=_known(ordered[rank - 1]),
        high=_known(ordered[count - rank]),
        coverage=_coverage(count, rank),
    )


def _known(value: float) -> float | None:
    return None if math.isinf(value) else value


def _coverage(count: int, rank: int) -> float:
    """Of the interval from the rank-th lowest to the rank-th highest of so many values."""
    outside = sum(math.comb(count, below) for below in range(rank))
    return max(1 - 2 * outside / 2**count, 0.0)


def wins(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """In how many pairs of a seed of each the first ends higher; a tie counts half."""
    won = 0.0
    for mine in (-math.inf if value is None else value for value in one):
        for theirs in (-math.inf if value is None else value for value in other):
            won += (mine > theirs) + (mine == theirs) / 2
    return won


def read_curve(store: RunStore, run: RunRow) -> Curve:
    """The curve of a run as it stands in the store."""
    told = [step for step in store.steps(run.id) if step.status is not None or step.failure]
    told.sort(key=lambda step: (step.elapsed_s, step.sequence))
    tokens = store.tokens(run.id)
    spent, best, points = Spent(), _Best(), []
    for step in told:
        if step.operator in NO_PROPOSALS:
            continue
        spent = _after(spent, step, tokens)
        if best.add(step, run.baseline):
            points.append(Point(spent, best.ratio))
    return Curve(run=run, points=points, total=spent, champion=champion(store, run))


def _after(spent: Spent, step: Step, tokens: Mapping[int, int]) -> Spent:
    judged = step.fidelity is Fidelity.SEARCH and step.status not in (None, Status.INFRA)
    return Spent(
        evaluations=spent.evaluations + judged,
        proposals=spent.proposals + (not step.tuning and step.operator not in NO_PROPOSALS),
        tokens=spent.tokens + tokens.get(step.sequence, 0),
        device_time_s=spent.device_time_s + step.device_time_s,
        wall_time_s=step.elapsed_s,
    )


@dataclass(slots=True)
class _Best:
    """The instance that a search would hand over, and the knowledge of all."""

    measured: dict[str, list[Interval]] = field(default_factory=dict)
    known: dict[str, Interval] = field(default_factory=dict)
    leader: str = ""

    @property
    def ratio(self) -> Ratio | None:
        if not self.leader:
            return None
        log = self.known[self.leader]
        return Ratio(math.exp(log.value), math.exp(log.low), math.exp(log.high))

    def add(self, step: Step, baseline: str) -> bool:
        """Take over an evaluation; whether it changes the result that would be returned."""
        if step.program is None or step.fidelity is not Fidelity.SEARCH:
            return False
        before = self.ratio
        instance = instance_digest(step.program, step.assignment)
        ratio = speedup(step, baseline)
        if ratio is not None:
            measured = self.measured.setdefault(instance, [])
            measured.append(ratio.log())
            self.known[instance] = pooled(measured)
        elif step.status not in _SAYS_NOTHING:
            self.known.pop(instance, None)
        if instance == self.leader or not self.leader or self._beats(instance):
            self.leader = max(self.known, key=lambda each: self.known[each].low, default="")
        return before != self.ratio

    def _beats(self, instance: str) -> bool:
        return instance in self.known and self.known[instance].low > self.known[self.leader].low
