"""MAP-Elites (Mouret and Clune 2015): the best programs of every cell of a grid."""

import math
from collections.abc import Mapping

from archives.descriptors import KERNEL_AXES, Axis, Bins
from archives.slot_table import MAX_CAPACITY, SlotTable, checked_capacity
from evolve.core.errors import UsageError
from evolve.core.protocols import AddStatus, Elite, Offer


class MapElites:
    """Keeps the `depth` best programs of every cell.

    A program is replaced in its cell only by one with a strictly higher fitness value. A program
    holds one slot: where its better instance falls into another cell, it moves there, unless that
    cell is full of better ones; then it stays, with the instance it is known by. Where all cells
    are more than `capacity`, a full archive gives up its worst program for a better newcomer.

    Args:
        axes: bins by descriptor name, see `archives.descriptors.Axis`.
        capacity: the most programs held.
        depth: programs per cell.

    Raises:
        UsageError: an axis, the capacity or the depth is out of range.
    """

    def __init__(
        self,
        *,
        axes: Mapping[str, Bins] = KERNEL_AXES,
        capacity: int = MAX_CAPACITY,
        depth: int = 1,
    ) -> None:
        if not isinstance(axes, Mapping) or not axes:
            raise UsageError(
                f"archive.axes must map descriptors to bins, got {axes!r}; "
                "write e.g. archive.axes={vector_width: [1, 4, 8, 16]}"
            )
        if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
            raise UsageError(f"archive.depth must be a whole number from 1, got {depth!r}; set 1")
        # By name, for a configuration comes back from the store with its keys in another order.
        self._axes = tuple(Axis.of(name, bins) for name, bins in sorted(axes.items()))
        self._depth = depth
        self._capacity = min(checked_capacity(capacity), self.cells * depth)
        self._table = SlotTable()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def cells(self) -> int:
        """How many cells the grid has."""
        return math.prod(axis.size for axis in self._axes)

    def cell(self, descriptors: Mapping[str, float | str]) -> str:
        """The name of the cell, axes by name: `layout=row|vector_width=4..8`."""
        return "|".join(f"{axis.name}={axis.bin(descriptors)}" for axis in self._axes)

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not; see `evolve.core.protocols.Archive`."""
        table = self._table
        held = table.slot_of(elite.program)
        own = table.get(held) if held is not None else None
        if own is not None and elite.fitness.value <= own.fitness.value:
            return Offer(AddStatus.NOT_ADDED)
        places = self._places(elite)
        slot = held if held in places else self._best_place(places)
        loser = table.get(slot)
        if loser is None and own is None and len(table) == self._capacity:
            loser = table.worst
        if loser is not None and elite.fitness.value <= loser.fitness.value:
            return Offer(AddStatus.NOT_ADDED)
        evicted = loser.program if loser is not None and loser.program != elite.program else None
        if evicted is not None:
            table.drop(evicted)
        table.put(slot, elite)
        status = AddStatus.NEW if loser is None and own is None else AddStatus.IMPROVED
        return Offer(status, slot, evicted)

    def slots(self) -> dict[str, Elite]:
        return self._table.slots()

    def restore(self, slots: Mapping[str, Elite]) -> None:
        self._table.restore(slots, self._capacity)

    def _places(self, elite: Elite) -> list[str]:
        cell = self.cell(elite.descriptors)
        return [cell, *(f"{cell}#{place}" for place in range(2, self._depth + 1))]

    def _best_place(self, places: list[str]) -> str:
        """The first empty place of a cell, else that of its worst program."""

        def fitness(place: str) -> float:
            elite = self._table.get(place)
            return -math.inf if elite is None else elite.fitness.value

        empty = [place for place in places if self._table.get(place) is None]
        return empty[0] if empty else min(places, key=fitness)
