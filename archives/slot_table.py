"""A bounded table of elites by slot, in order of fitness."""

from bisect import bisect_left, insort
from collections.abc import Mapping

from evolve.core.errors import UsageError
from evolve.core.protocols import Elite, rank

MAX_CAPACITY = 10_000


def checked_capacity(capacity: int) -> int:
    """The capacity of an archive. Raises UsageError unless it is 1 to `MAX_CAPACITY`."""
    whole = isinstance(capacity, int) and not isinstance(capacity, bool)
    if not whole or not 1 <= capacity <= MAX_CAPACITY:
        raise UsageError(
            f"archive.capacity must be a whole number from 1 to {MAX_CAPACITY}, got {capacity!r}; "
            "set archive.capacity=1000"
        )
    return capacity


class SlotTable:
    """Elites by slot; at most one slot per program. Every change costs O(log n) comparisons."""

    def __init__(self) -> None:
        self._elites: dict[str, Elite] = {}
        self._slot_of: dict[str, str] = {}
        self._ranks: list[tuple[float, int, str]] = []  # best first

    def __len__(self) -> int:
        return len(self._elites)

    def get(self, slot: str) -> Elite | None:
        return self._elites.get(slot)

    def slot_of(self, program: str) -> str | None:
        return self._slot_of.get(program)

    @property
    def worst(self) -> Elite:
        return self._elites[self._slot_of[self._ranks[-1][2]]]

    def put(self, slot: str, elite: Elite) -> None:
        """Hold the elite at the slot and nowhere else; whoever was at the slot is dropped."""
        self.drop(elite.program)
        if slot in self._elites:
            self.drop(self._elites[slot].program)
        self._elites[slot] = elite
        self._slot_of[elite.program] = slot
        insort(self._ranks, rank(elite))

    def drop(self, program: str) -> None:
        """Forget the program if it is held."""
        slot = self._slot_of.pop(program, None)
        if slot is not None:
            del self._ranks[bisect_left(self._ranks, rank(self._elites.pop(slot)))]

    def slots(self) -> dict[str, Elite]:
        """A copy, best elite first: the order depends on what is held, not on how it came in."""
        places = [self._slot_of[program] for _, _, program in self._ranks]
        return {slot: self._elites[slot] for slot in places}

    def restore(self, slots: Mapping[str, Elite], capacity: int) -> None:
        """Hold these slots only. Raises UsageError where they are more than `capacity`."""
        if len(slots) > capacity:
            raise UsageError(
                f"archive.capacity={capacity} is less than the {len(slots)} programs that the run "
                "holds; set a capacity that is no smaller than before"
            )
        self._elites = dict(slots)
        self._slot_of = {elite.program: slot for slot, elite in slots.items()}
        self._ranks = sorted(map(rank, slots.values()))
