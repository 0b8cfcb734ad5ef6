"""Admission by novelty: of programs that are nearly the same, an archive holds the best."""

from collections.abc import Callable, Mapping

import numpy as np

from archives.checks import checked_capacity, checked_number
from archives.distances import Distance, Text
from archives.rows import Rows
from archives.slot_table import SlotTable
from archives.wrapping import make_inner
from evolve.core.protocols import AddStatus, Archive, Elite, Offer, best_of, rank


class Novelty:
    """Keeps a net: programs of another archive that are further than `epsilon` from each other.

    A newcomer that is near a program at least as fast is refused; otherwise those near it give way,
    if the archive takes it (clearing, Pétrowski 1996). The same holds for a program that is held
    when its best instance is another one by now. With `before_judging` a new program near one that
    is held is not even evaluated, if its text says so (the net of POLCA, arXiv 2603.14769, which
    knows no fitness): that saves evaluations, and loses programs that a small change made faster.
    Exact duplicates never come this far. Programs of which the distance knows nothing are near
    none.

    Args:
        of: makes the archive; called with its capacity.
        capacity: the most programs held.
        epsilon: programs this near, or nearer, are told apart by fitness only.
        distance: the measure of similarity; None for that of the texts.
        before_judging: whether near ones are turned away before they are evaluated.

    Raises:
        UsageError: a setting is out of range, or the archive holds a program at several places.
    """

    def __init__(
        self,
        *,
        of: Callable[..., Archive],
        capacity: int = 1000,
        epsilon: float = 0.05,
        distance: Distance | None = None,
        before_judging: bool = False,
    ) -> None:
        self._archive = make_inner(of, checked_capacity(capacity))
        self._epsilon = checked_number("epsilon", epsilon, 0, 1, example=0.05)
        self._distance: Distance = Text() if distance is None else distance
        self._before_judging = before_judging
        self._table = SlotTable()
        self._rows = Rows(self._distance.width, self._distance.dtype)
        self.offers = frozenset(getattr(self._archive, "offers", ()))
        self.describes = {**self._distance.describes, **getattr(self._archive, "describes", {})}

    @property
    def capacity(self) -> int:
        return self._archive.capacity

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not; see `evolve.core.protocols.Archive`."""
        if self._table.elite(elite.program) == elite:
            return Offer(AddStatus.NOT_ADDED)
        near = [other for other in self._near(elite.descriptors) if other.program != elite.program]
        if any(other.fitness.value >= elite.fitness.value for other in near):
            left = self.remove(elite.program)
            return Offer(AddStatus.NOT_ADDED, evicted=elite.program if left else None)
        if near:
            return self._clear(near, elite)
        offer = self._archive.offer(elite)
        self._follow(elite, offer)
        return offer

    def remove(self, program: str) -> bool:
        self._archive.remove(program)
        self._rows.drop(program)
        return self._table.drop(program)

    def slots(self) -> dict[str, Elite]:
        return self._table.slots()

    def restore(self, slots: Mapping[str, Elite]) -> None:
        self._archive.restore(slots)
        self._table.restore(slots, self.capacity)
        self._rows = Rows(self._distance.width, self._distance.dtype)
        for elite in slots.values():
            self._add_row(elite)

    def near_duplicate_of(self, descriptors: Mapping[str, float | str]) -> str | None:
        """The best program that one of these descriptors is too near to be judged."""
        best = best_of(self._near(descriptors)) if self._before_judging else None
        return None if best is None else best.program

    def _near(self, descriptors: Mapping[str, float | str]) -> list[Elite]:
        row = self._distance.row(descriptors)
        if row is None or not len(self._rows):
            return []
        near = np.flatnonzero(self._distance.between(row, self._rows.values) <= self._epsilon)
        found = (self._table.elite(self._rows.programs[place]) for place in near)
        return [other for other in found if other is not None]

    def _clear(self, near: list[Elite], elite: Elite) -> Offer:
        """Put the elite in the place of those near it, all of which are slower."""
        before = {self._table.slot_of(other.program) or "": other for other in near}
        for other in near:
            self._archive.remove(other.program)
        offer = self._archive.offer(elite)
        if not offer:
            self._archive.restore({**self._archive.slots(), **before})
            return offer
        emptied = sorted(before, key=lambda slot: rank(before[slot]))
        moves = {slot: None for slot in emptied if slot != offer.slot} | dict(offer.moves)
        loser = offer.evicted or before[offer.slot if offer.slot in before else emptied[0]].program
        cleared = Offer(AddStatus.IMPROVED, offer.slot, loser, moves)
        self._follow(elite, cleared)
        return cleared

    def _follow(self, elite: Elite, offer: Offer) -> None:
        """Keep the table and the rows as the archive is."""
        before = self._table.follow(elite, offer).values()
        for program in {elite.program, *(loser.program for loser in before if loser is not None)}:
            self._rows.drop(program)
            if (held := self._table.elite(program)) is not None:
                self._add_row(held)

    def _add_row(self, elite: Elite) -> None:
        row = self._distance.row(elite.descriptors)
        if row is not None:
            self._rows.add(elite.program, row)
