"""Base of archives with a number of equal places."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import count

from archives.checks import checked_capacity
from archives.slot_table import SlotTable
from evolve.core.protocols import AddStatus, Elite, Offer


class Bounded(ABC):
    """Holds up to `capacity` programs in numbered places, which have no meaning.

    Once it is full, a newcomer takes the place of the weakest program, or is refused if it is the
    weakest itself. Subclasses choose it by `_weakest`, and may keep books by `_added`, `_removed`
    and `_restored`; their state has to follow from the elites held.

    Raises:
        UsageError: the capacity is out of range.
    """

    def __init__(self, *, capacity: int) -> None:
        self._capacity = checked_capacity(capacity)
        self._table = SlotTable()

    @property
    def capacity(self) -> int:
        return self._capacity

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not; see `evolve.core.protocols.Archive`."""
        slot = self._table.slot_of(elite.program)
        if slot is not None:
            if self._table.get(slot) == elite:
                return Offer(AddStatus.NOT_ADDED)
            self._drop(elite.program)
            self._put(slot, elite)
            return Offer(AddStatus.IMPROVED, slot)
        if len(self._table) < self._capacity:
            slot = self._free_slot()
            self._put(slot, elite)
            return Offer(AddStatus.NEW, slot)
        loser = self._weakest(elite)
        if loser is None:
            return Offer(AddStatus.NOT_ADDED)
        slot = self._table.slot_of(loser.program)
        self._drop(loser.program)
        self._put(slot or "", elite)
        return Offer(AddStatus.IMPROVED, slot, loser.program)

    def remove(self, program: str) -> bool:
        held = self._table.slot_of(program) is not None
        self._drop(program)
        return held

    def slots(self) -> dict[str, Elite]:
        return self._table.slots()

    def restore(self, slots: Mapping[str, Elite]) -> None:
        self._table.restore(slots, self._capacity)
        self._restored()

    @abstractmethod
    def _weakest(self, newcomer: Elite) -> Elite | None:
        """The elite that a newcomer to the full archive replaces; None if the newcomer is refused.

        Never the best program: that may only be lost to a better one.
        """

    def _added(self, elite: Elite) -> None:  # noqa: B027
        """An elite is held from now on."""

    def _removed(self, elite: Elite) -> None:  # noqa: B027
        """An elite was held until now."""

    def _restored(self) -> None:  # noqa: B027
        """Quite other elites are held from now on."""

    def _put(self, slot: str, elite: Elite) -> None:
        self._table.put(slot, elite)
        self._added(elite)

    def _drop(self, program: str) -> None:
        elite = self._table.elite(program)
        if elite is not None:
            self._table.drop(program)
            self._removed(elite)

    def _free_slot(self) -> str:
        return next(str(n) for n in count(len(self._table)) if self._table.get(str(n)) is None)
