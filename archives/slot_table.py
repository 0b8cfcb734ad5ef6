"""A table of elites by slot, in order of fitness."""

from bisect import bisect_left, insort
from collections.abc import Mapping

from evolve.core.errors import UsageError
from evolve.core.protocols import Elite, Offer, rank


class SlotTable:
    """Elites by slot; at most one slot per program. Every change costs O(log n) comparisons."""

    def __init__(self) -> None:
        self._elites: dict[str, Elite] = {}
        self._slot_of: dict[str, str] = {}
        self._ranks: list[tuple[float, int, str]] = []  # best first
        self._steps: list[int] = []  # ascending

    def __len__(self) -> int:
        return len(self._elites)

    def get(self, slot: str) -> Elite | None:
        return self._elites.get(slot)

    def slot_of(self, program: str) -> str | None:
        return self._slot_of.get(program)

    def elite(self, program: str) -> Elite | None:
        """The elite of a program, None if it is not held."""
        slot = self._slot_of.get(program)
        return None if slot is None else self._elites[slot]

    def at(self, place: int) -> Elite:
        """The elite at a place in the order of fitness: 0 is the best, -1 the worst."""
        return self._elites[self._slot_of[self._ranks[place][2]]]

    @property
    def latest(self) -> int:
        """The highest number of a step that is held, -1 if nothing is."""
        return self._steps[-1] if self._steps else -1

    def put(self, slot: str, elite: Elite) -> None:
        """Hold the elite at the slot and nowhere else; its former holder is dropped."""
        self.drop(elite.program)
        if slot in self._elites:
            self.drop(self._elites[slot].program)
        self._elites[slot] = elite
        self._slot_of[elite.program] = slot
        insort(self._ranks, rank(elite))
        insort(self._steps, elite.step)

    def drop(self, program: str) -> bool:
        """Forget the program; whether it was held."""
        slot = self._slot_of.pop(program, None)
        if slot is None:
            return False
        elite = self._elites.pop(slot)
        del self._ranks[bisect_left(self._ranks, rank(elite))]
        del self._steps[bisect_left(self._steps, elite.step)]
        return True

    def follow(self, elite: Elite, offer: Offer) -> dict[str, Elite | None]:
        """Apply the decision of another archive, which never holds a program twice, on an elite.

        See `Offer`. Returns the former holders of the slots that changed.
        """
        leaving = [offer.evicted or "", elite.program if offer else ""]
        moves = dict(offer.moves)
        if offer.slot is not None:
            moves.setdefault(offer.slot, elite.program)
        known = {program: self.elite(program) for program in moves.values() if program is not None}
        known[elite.program] = elite
        slots = {self._slot_of[program] for program in leaving if program in self._slot_of}
        before = {slot: self._elites.get(slot) for slot in slots.union(moves)}
        for program in leaving:
            self.drop(program)
        for slot, taker in moves.items():
            if (loser := self._elites.get(slot)) is not None:
                self.drop(loser.program)
            if taker is not None and (newcomer := known[taker]) is not None:
                self.put(slot, newcomer)
        return before

    def slots(self) -> dict[str, Elite]:
        """A copy, best elite first: the order depends on the elites, not on their arrival."""
        places = [self._slot_of[program] for _, _, program in self._ranks]
        return {slot: self._elites[slot] for slot in places}

    def restore(self, slots: Mapping[str, Elite], capacity: int) -> None:
        """Hold these slots only. Raises UsageError if they are more than `capacity`."""
        if len(slots) > capacity:
            raise UsageError(
                f"archive.capacity={capacity} is less than the {len(slots)} programs that the run "
                "holds; set a capacity that is no smaller than before"
            )
        self._elites = dict(slots)
        self._slot_of = {elite.program: slot for slot, elite in slots.items()}
        self._ranks = sorted(map(rank, slots.values()))
        self._steps = sorted(elite.step for elite in slots.values())
