"""MAP-Elites (Mouret and Clune 2015): the best programs of every cell of a grid."""

import math
from collections.abc import Mapping

from archives.checks import MAX_CAPACITY, checked_capacity, checked_whole
from archives.descriptors import KERNEL_AXES, Axis, Bins, of_text
from archives.slot_table import SlotTable
from evolve.core.errors import UsageError
from evolve.core.protocols import AddStatus, Elite, Offer


class MapElites:
    """Keeps the `depth` best programs of every cell.

    A program is replaced in its cell only by one with a strictly higher fitness value. A program
    holds one slot: if its best instance falls into another cell by now, it moves there, unless that
    cell is full of better ones; then it stays where it is. If all cells are more than `capacity`, a
    full archive gives up its worst program for a better newcomer.

    Args:
        axes: bins by descriptor name, see `archives.descriptors.Axis`; None leaves one out.
        capacity: the most programs held.
        depth: programs per cell.

    Raises:
        UsageError: an axis, the capacity or the depth is out of range.
    """

    def __init__(
        self,
        *,
        axes: Mapping[str, Bins | None] = KERNEL_AXES,
        capacity: int = MAX_CAPACITY,
        depth: int = 1,
    ) -> None:
        if not isinstance(axes, Mapping) or all(bins is None for bins in axes.values()):
            raise UsageError(
                f"archive.axes must map descriptors to bins, got {axes!r}; "
                "write e.g. archive.axes={vector_width: [1, 4, 8, 16]}"
            )
        # By name, for a configuration comes back from the store with its keys in another order.
        given = {name: bins for name, bins in axes.items() if bins is not None}
        self._axes = tuple(Axis.of(name, bins) for name, bins in sorted(given.items()))
        self.describes = of_text(given)
        self._depth = checked_whole("depth", depth, 1, example=1)
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
        own = self._table.elite(elite.program)
        if own == elite:
            return Offer(AddStatus.NOT_ADDED)
        return self._admit(elite) if own is None else self._replace(own, elite)

    def _admit(self, newcomer: Elite) -> Offer:
        table = self._table
        slot = self._best_place(self._places(newcomer))
        loser = table.get(slot)
        if loser is None and len(table) == self._capacity:
            loser = table.at(-1)
        if loser is None:
            table.put(slot, newcomer)
            return Offer(AddStatus.NEW, slot)
        if newcomer.fitness.value <= loser.fitness.value:
            return Offer(AddStatus.NOT_ADDED)
        table.drop(loser.program)
        table.put(slot, newcomer)
        return Offer(AddStatus.IMPROVED, slot, loser.program)

    def _replace(self, own: Elite, elite: Elite) -> Offer:
        """Current knowledge of a held program, in another cell if that has a place for it."""
        table = self._table
        held, places = table.slot_of(own.program) or "", self._places(elite)
        slot = held if held in places else self._best_place(places)
        loser = None if slot == held else table.get(slot)
        if loser is not None and elite.fitness.value <= loser.fitness.value:
            slot, loser = held, None
        table.put(slot, elite)
        return Offer(AddStatus.IMPROVED, slot, loser.program if loser else None)

    def remove(self, program: str) -> bool:
        return self._table.drop(program)

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
