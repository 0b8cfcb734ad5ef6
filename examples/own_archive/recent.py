"""An archive of your own: the most recent improvements, oldest out first.

An archive is any object with `capacity`, `offer`, `remove`, `slots` and `restore`; see
`evolve.core.protocols.Archive` for the contract, and `evolve.testing.archives` for its tests. What
it holds is stored for it, in the transaction of the step that changed it, and given back by
`restore`. Use it from this folder:

    PYTHONPATH=. evolve run task=rmsnorm archive=topk archive._target_=recent.Recent
"""

from collections.abc import Mapping

from evolve.core.protocols import AddStatus, Elite, Offer, best_of


class Recent:
    """Keeps the champion and the programs that came last.

    Args:
        capacity: the most programs held at once.
    """

    def __init__(self, *, capacity: int = 20) -> None:
        self._capacity = capacity
        self._slots: dict[str, Elite] = {}

    @property
    def capacity(self) -> int:
        return self._capacity

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite; of a program that is held already, what is known of it by now."""
        held = next((s for s, e in self._slots.items() if e.program == elite.program), None)
        if held is not None:
            if elite == self._slots[held]:
                return Offer(AddStatus.NOT_ADDED)
            self._slots[held] = elite
            return Offer(AddStatus.IMPROVED, held)
        if len(self._slots) < self._capacity:
            slot = next(str(n) for n in range(self._capacity) if str(n) not in self._slots)
            self._slots[slot] = elite
            return Offer(AddStatus.NEW, slot)
        slot = self._oldest(elite)
        if slot is None:
            return Offer(AddStatus.NOT_ADDED)
        loser, self._slots[slot] = self._slots[slot], elite
        return Offer(AddStatus.IMPROVED, slot, loser.program)

    def remove(self, program: str) -> bool:
        """Let a program go that was refuted; whether it was held."""
        held = len(self._slots)
        self._slots = {s: e for s, e in self._slots.items() if e.program != program}
        return len(self._slots) < held

    def slots(self) -> dict[str, Elite]:
        return dict(self._slots)

    def restore(self, slots: Mapping[str, Elite]) -> None:
        self._slots = dict(slots)

    def _oldest(self, newcomer: Elite) -> str | None:
        """The slot to give up: never the champion's."""
        champion = best_of([*self._slots.values(), newcomer])
        others = [slot for slot, elite in self._slots.items() if elite is not champion]
        return min(others, key=lambda slot: self._slots[slot].sequence, default=None)
