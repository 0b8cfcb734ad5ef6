"""The archive's elites as selection policies see them, kept up to date from its answers."""

from collections.abc import Mapping, Sequence

from evolve.core.protocols import Elite, Offer, Population, Visits
from evolve.core.run_store import RunStore
from evolve.search.ancestry_tree import Forest
from evolve.search.ranking import Ranking

_NONE = Visits()


class LivePopulation(Population):
    """The content of an archive, followed without asking for its slots after every step.

    Visits, islands and descent are read from the store, or put together, when a policy first asks
    for them, and kept up to date from then on: a policy that needs none of them pays for none.

    Args:
        store: where visits are.
        run: whose archive it is.
        slots: the present content of the archive.
    """

    turn = 0
    ranked: Ranking

    def __init__(self, store: RunStore, run: int, slots: Mapping[str, Elite]) -> None:
        self._store = store
        self._run = run
        self._elites = {elite.program: elite for elite in slots.values()}
        self.ranked = Ranking(self._elites.values())
        self._programs = {slot: elite.program for slot, elite in slots.items()}
        self._slots: dict[str, set[str]] = {}  # by program
        for slot, program in self._programs.items():
            self._slots.setdefault(program, set()).add(slot)
        self._islands: dict[str, Ranking] | None = None
        self._visits: dict[str, Visits] | None = None
        self._forest: Forest | None = None

    @property
    def islands(self) -> Mapping[str, Sequence[Elite]]:
        if self._islands is None:
            members: dict[str, list[Elite]] = {}
            for program, elite in self._elites.items():
                for island in self._islands_of(program):
                    members.setdefault(island, []).append(elite)
            self._islands = {island: Ranking(elites) for island, elites in members.items()}
        return {name: self._islands[name] for name in sorted(self._islands) if self._islands[name]}

    def island(self, program: str | None, turn: int) -> Sequence[Elite] | None:
        """The elites of a program's island, best first; None if there are no islands.

        Of several islands that in turn, as an archive takes it for a child. Without a program the
        one in turn; empty for a program that is not held.
        """
        if "/" not in next(iter(self._programs), ""):
            return None
        islands = self.islands
        names, due = list(islands), list(islands)[turn % len(islands)]
        homes = sorted(self._islands_of(program)) if program is not None else names
        if due in homes:
            return islands[due]
        return islands[homes[turn % len(homes)]] if homes else ()

    def elite(self, program: str) -> Elite | None:
        return self._elites.get(program)

    def slot(self, program: str) -> str:
        return min(self._slots[program])

    def visits(self, program: str) -> Visits:
        if self._visits is None:
            self._visits = self._store.held_visits(self._run)
        return self._visits.get(program, _NONE)

    def children(self, program: str) -> Sequence[Elite]:
        return self._descent.children(program)

    @property
    def roots(self) -> Sequence[Elite]:
        return self._descent.children(None)

    def recount(self, parents: Sequence[str]) -> None:
        """A ticket was stored, or told, that these programs were selected for: visits changed."""
        if self._visits is None or not parents:
            return
        for program, visits in self._store.visits(self._run, parents[0]).items():
            if program in self._elites:
                self._visits[program] = visits

    def update(self, elite: Elite, offer: Offer) -> None:
        """Apply an archive's decision on an elite; `Offer` describes it."""
        leaving = [offer.evicted, elite.program if offer else None]
        taken = ({} if offer.slot is None else {offer.slot: elite.program}) | dict(offer.moves)
        overwritten = map(self._programs.get, taken)
        touched = {each for each in (*leaving, *overwritten, *taken.values()) if each is not None}
        before = {program: self._islands_of(program) for program in touched}
        for program in filter(None, leaving):
            for slot in self._slots.pop(program, ()):
                del self._programs[slot]
        for slot, taker in taken.items():
            self._put(slot, taker)
        for program in sorted(touched):
            old = self._elites.get(program)
            newest = elite if offer and program == elite.program else old
            self._exchange(old, newest if program in self._slots else None, before[program])

    def _put(self, slot: str, program: str | None) -> None:
        loser = self._programs.pop(slot, None)
        if loser is not None:
            self._slots[loser].discard(slot)
            if not self._slots[loser]:
                del self._slots[loser]
        if program is not None:
            self._programs[slot] = program
            self._slots.setdefault(program, set()).add(slot)

    def _exchange(self, old: Elite | None, new: Elite | None, islands: set[str]) -> None:
        """A program's elite is another one, was not held before, or is not held any more."""
        if old is not None:
            self.ranked.remove(old)
            del self._elites[old.program]
        if new is not None:
            self.ranked.add(new)
            self._elites[new.program] = new
        if old is not None and new is None and self._visits is not None:
            self._visits.pop(old.program, None)
        if old is None and new is not None:
            self._recall(new.program)
        if self._islands is not None and old is not None:
            for island in islands:
                self._islands[island].remove(old)
        if self._islands is not None and new is not None:
            for island in self._islands_of(new.program):
                self._islands.setdefault(island, Ranking()).add(new)
        if self._forest is not None and old != new:
            self._regrow(self._forest, old, new)

    def _recall(self, program: str) -> None:
        """A program that comes in may have been held before."""
        if self._visits is not None:
            found = self._store.visits(self._run, program)
            if program in found:
                self._visits[program] = found[program]

    def _regrow(self, forest: Forest, old: Elite | None, new: Elite | None) -> None:
        if old is not None and new is not None:
            forest.replace(old, new)
        elif old is not None:
            forest.remove(old)
        elif new is not None:
            line = self._store.visits(self._run, new.program)
            asked = line[new.program].asked if line else 0
            forest.add(new, list(line)[1:], was_parent=asked > 0)

    @property
    def _descent(self) -> Forest:
        if self._forest is None:
            self._forest = Forest(self.ranked, self._store.held_links(self._run))
        return self._forest

    def _islands_of(self, program: str) -> set[str]:
        slots = self._slots.get(program, ())
        return {slot.partition("/")[0] if "/" in slot else "" for slot in slots}
