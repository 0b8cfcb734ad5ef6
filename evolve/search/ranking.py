"""The archive's elites in order of fitness, kept up to date from its answers."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from evolve.core.protocols import Elite, Offer, rank


class Ranking:
    """What `archive.slots()` holds, best first, without asking for it again after every step.

    An order that depends on what is held only, and not on how it came in, makes a resumed search
    select as the first one would have.
    """

    def __init__(self, elites: Iterable[Elite]) -> None:
        self._ranked = sorted(elites, key=rank)
        self._held = {elite.program: elite for elite in self._ranked}

    @property
    def elites(self) -> Sequence[Elite]:
        """Best first; not to be kept over a change."""
        return self._ranked

    def update(self, elite: Elite, offer: Offer) -> None:
        """Take over what an archive did with an elite."""
        if not offer:
            return
        for program in (elite.program, offer.evicted or ""):
            if loser := self._held.pop(program, None):
                del self._ranked[bisect_left(self._ranked, rank(loser), key=rank)]
        insort(self._ranked, elite, key=rank)
        self._held[elite.program] = elite
