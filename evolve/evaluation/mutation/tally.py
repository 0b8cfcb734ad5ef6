"""Sums over the fates of mutants: kill rates by kind, and by inputs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evolve.evaluation.mutation.audit import Fate, Judged
from evolve.evaluation.mutation.mutant import Kind


@dataclass(frozen=True, slots=True)
class KindRow:
    """Counts of one kind; `proven` is what is provably wrong, `killed` what the judge refuses."""

    name: str
    tried: int
    invalid: int
    unproven: int
    proven: int
    killed: int

    @property
    def rate(self) -> float | None:
        """Share of the provably wrong that is killed; None if there are none."""
        return self.killed / self.proven if self.proven else None


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """How many provably wrong mutants the inputs of a family or a case kill, and kill alone."""

    name: str
    kills: int
    alone: int


def by_kind(judged: Sequence[Judged]) -> list[KindRow]:
    """A row for each kind that occurs, and one for all."""
    rows = [_row(kind.value, [t for t in judged if t.mutant.kind is kind]) for kind in Kind]
    return [row for row in rows if row.tried] + [_row("all", judged)]


def _row(name: str, judged: Sequence[Judged]) -> KindRow:
    fates = Counter(t.fate for t in judged)
    return KindRow(
        name=name,
        tried=len(judged),
        invalid=fates[Fate.INVALID],
        unproven=fates[Fate.UNPROVEN],
        proven=fates[Fate.KILLED] + fates[Fate.SURVIVED],
        killed=fates[Fate.KILLED],
    )


def by_family(judged: Iterable[Judged], places: Sequence[str]) -> list[PlaceRow]:
    """A row for each input family of the kill matrix."""
    return _places(judged, places, 1)


def by_case(judged: Iterable[Judged], places: Sequence[str]) -> list[PlaceRow]:
    """A row for each case of the kill matrix."""
    return _places(judged, places, 0)


def _places(judged: Iterable[Judged], places: Sequence[str], part: int) -> list[PlaceRow]:
    kills: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for one in judged:
        names = {_parts(place)[part] for place in one.kills}
        kills.update(names)
        if len(names) == 1:
            alone.update(names)
    ordered = dict.fromkeys(_parts(place)[part] for place in places)
    return [PlaceRow(name, kills[name], alone[name]) for name in ordered]


def _parts(place: str) -> tuple[str, str]:
    case, _, family = place.rpartition("/")
    return case, family
