"""Islands: the next one, and the choice of parents there."""

import heapq
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import ClassVar

from evolve.core.errors import UsageError
from evolve.core.protocols import Elite, Population, SelectionPolicy
from evolve.search.selection.best import ExploreExploit
from evolve.search.selection.checks import check_number, check_whole
from evolve.search.selection.draws import WINDOW
from evolve.search.selection.part import Part
from evolve.search.selection.ranked import Tournament

_RECENT = 64  # evaluations of an island that are told apart; at decay 0.9 older ones weigh 0.1 %


@dataclass(frozen=True, slots=True, kw_only=True)
class IslandRoundRobin:
    """One island after the other; within it another policy chooses (OpenEvolve).

    Args:
        within: the policy; it sees the elites of the island only.
    """

    within: SelectionPolicy = field(default_factory=Tournament)

    @property
    def needs(self) -> frozenset[str]:
        """Islands, and the facts about them that the inner policy needs."""
        return frozenset({"islands", *getattr(self.within, "needs", ())})

    @property
    def fires_at(self) -> dict[str, int]:
        """When the mechanisms of the policy within first act."""
        fires: dict[str, int] = getattr(self.within, "fires_at", {})
        return {f"within.{name}": step for name, step in fires.items()}

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        islands = list(population.islands.values())
        if not islands:
            return ()
        turn, place = divmod(population.turn, len(islands))
        return self.within.select(Part(population, islands[place], turn), count, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveIslands:
    """Islands by their recent gains, with more weight for active ones (AdaEvolve).

    Arm and intensity of arXiv 2602.20133 (`adaevolve/adaptation.py`). An evaluation's gain d is how
    far, in log speedup, it rose above all that the island had before, at most 1. The island with
    the highest R / V + exploration * sqrt(ln(T + 1) / n) is next: R and V are its gains and its
    evaluations with weights that fall by `decay` per evaluation, n and T the tickets of the island
    and of all. One asked fewer than `least_visits` times goes first. There any elite is taken with
    probability I = low + (high - low) / (1 + sqrt(G)), one of the top quarter with 0.7 * (1 - I),
    and else one in proportion to speedup; G is the moving average of d ** 2, so that an island that
    stands still explores.

    G falls at gains only, and a migrant counts for G and never for R and V, as in the source: one
    that stands on several islands was made where a parent of it stands.

    All of it is read from the elites that are held, the best 1000 of all islands together: an
    evaluation that left none had no gain, and is taken to lie evenly between the others. The
    tickets of a program that stands on several islands are shared out evenly, as its children are.

    Raises:
        UsageError: a setting is out of range, or `intensity_low` above `intensity_high`.
    """

    exploration: float = 1.41
    decay: float = 0.9
    intensity_low: float = 0.1
    intensity_high: float = 0.7
    least_visits: int = 3
    needs: ClassVar[frozenset[str]] = frozenset({"islands"})

    def __post_init__(self) -> None:
        check_number("exploration", self.exploration, least=0, example=1.41)
        check_number("decay", self.decay, least=0, most=0.99, example=0.9)
        check_number("intensity_low", self.intensity_low, least=0, most=1, example=0.1)
        check_number("intensity_high", self.intensity_high, least=0, most=1, example=0.7)
        check_whole("least_visits", self.least_visits, least=0, example=3)
        if self.intensity_low > self.intensity_high:
            raise UsageError(
                f"selection.intensity_low is {self.intensity_low:g}, above intensity_high "
                f"({self.intensity_high:g}); lower it"
            )

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        held = population.islands.values()
        if not held:
            return ()
        window = max(WINDOW // len(held), _RECENT)
        copies = Counter(elite.program for elites in held for elite in elites[:window])
        islands = [self._record(population, elites, window, copies) for elites in held]
        chosen = self._next(islands)
        intensity = self.intensity_low + (self.intensity_high - self.intensity_low) / (
            1 + math.sqrt(chosen.energy)
        )
        within = ExploreExploit(
            exploration=intensity,
            exploitation=0.7 * (1 - intensity),
            top=math.ceil(len(chosen.elites) / 4),
        )
        return within.select(Part(population, chosen.elites, population.turn), count, rng)

    def _next(self, islands: Sequence["_Record"]) -> "_Record":
        least = min(islands, key=lambda island: island.asked)
        if least.asked < max(self.least_visits, 1):
            return least
        log_total = math.log(sum(island.asked for island in islands) + 1)
        return max(
            islands,
            key=lambda island: island.rate + self.exploration * math.sqrt(log_total / island.asked),
        )

    def _record(
        self,
        population: Population,
        elites: Sequence[Elite],
        window: int,
        copies: Mapping[str, int],
    ) -> "_Record":
        """Replays the newest evaluations among the best of an island.

        Args:
            population: knows the results of programs as parents.
            elites: of the island.
            window: how many of them are read.
            copies: on how many islands a program stands.
        """
        read = elites[:window]
        counts = [(population.visits(elite.program), copies[elite.program]) for elite in read]
        told = sum(visits.told / islands for visits, islands in counts)
        apart = max(told / len(read), 1.0)  # evaluations from one held elite to the next
        fade = self.decay**apart
        newest = heapq.nlargest(_RECENT, read, key=attrgetter("sequence"))[::-1]
        best = _best_before(read, newest[0].sequence)
        here = {elite.program for elite in read}
        gains = visits = energy = 0.0
        for elite in newest:
            value = elite.fitness.value
            gain = min(max(value - best, 0.0), 1.0) if best is not None else 0.0
            best = value if best is None else max(best, value)
            if copies[elite.program] == 1 or not here.isdisjoint(elite.parents):
                gains = gains * fade + gain
                visits = visits * fade + (1 - fade) / (1 - self.decay)
            if gain:
                energy = energy * self.decay + (1 - self.decay) * gain**2
        asked = sum(visits.asked / islands for visits, islands in counts)
        return _Record(elites=elites, rate=gains / (visits or 1.0), energy=energy, asked=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """Facts of an island: recent gain per evaluation, its moving square, its tickets."""

    elites: Sequence[Elite]
    rate: float
    energy: float
    asked: float


def _best_before(elites: Sequence[Elite], sequence: int) -> float | None:
    """The highest fitness value among elites (best first) older than a ticket."""
    return next((elite.fitness.value for elite in elites if elite.sequence < sequence), None)
