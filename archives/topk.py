"""The best programs, one line of them."""

from collections.abc import Mapping
from itertools import count

from archives.slot_table import SlotTable, checked_capacity
from evolve.core.protocols import AddStatus, Elite, Offer


class TopK:
    """Keeps the `capacity` programs with the highest fitness.

    A program is replaced only by one with a strictly higher fitness value; slots are numbers
    without a meaning.

    >>> TopK(capacity=2).slots()
    {}

    Raises:
        UsageError: the capacity is out of range.
    """

    def __init__(self, *, capacity: int = 100) -> None:
        self._capacity = checked_capacity(capacity)
        self._table = SlotTable()

    @property
    def capacity(self) -> int:
        return self._capacity

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not; see `evolve.core.protocols.Archive`."""
        table = self._table
        slot = table.slot_of(elite.program)
        if slot is None and len(table) < self._capacity:
            slot = self._free_slot()
            table.put(slot, elite)
            return Offer(AddStatus.NEW, slot)
        loser = table.get(slot) if slot is not None else table.worst
        if loser is None or elite.fitness.value <= loser.fitness.value:
            return Offer(AddStatus.NOT_ADDED)
        evicted = loser.program if slot is None else None
        slot = slot or table.slot_of(loser.program) or ""
        table.put(slot, elite)
        return Offer(AddStatus.IMPROVED, slot, evicted)

    def slots(self) -> dict[str, Elite]:
        return self._table.slots()

    def restore(self, slots: Mapping[str, Elite]) -> None:
        self._table.restore(slots, self._capacity)

    def _free_slot(self) -> str:
        return next(str(n) for n in count(len(self._table)) if self._table.get(str(n)) is None)
