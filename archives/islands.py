"""Islands: several archives, each with its own lines, that send each other their best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from archives.checks import MAX_CAPACITY, checked_capacity, checked_choice, checked_whole
from archives.slot_table import SlotTable
from archives.wrapping import make_inner
from evolve.core.errors import UsageError
from evolve.core.protocols import AddStatus, Archive, Elite, Offer, rank
from evolve.core.randomness import stream

ROUTES = ("none", "ring", "star", "random")
MAX_ISLANDS = 10  # one digit, so that the order of their names is that of their numbers

Place = tuple[int, str]  # island and slot there


@dataclass(frozen=True, slots=True)
class Island:
    """An archive, and its slots."""

    archive: Archive
    table: SlotTable = field(default_factory=SlotTable)


class Islands:
    """Archives side by side (Tanese 1989); slots are named `NUMBER/slot`.

    A child lives where its main parent does, else where another parent does. Of several islands of
    a parent it takes number `step` modulo their count, as a policy does that takes the islands
    in turn. A program without a parent here settles on every empty island, else on the next in
    turn.

    Every `interval` steps each island sends copies of its best to others, all at once; a program on
    several islands is not sent on, or one program would come to hold them all (OpenEvolve sends no
    migrant on, `database.py`; here one may once its other copies are gone). It is at the first
    newcomer that is kept after so many numbers, so that it also happens in short runs, and at a
    refused one whose number is a multiple. The islands that the newcomer settled on receive none
    then. For every `patience` steps that the best program has stood there is an island more than at
    the start, until there are `most`; it is founded with a copy of some elite, at the next
    newcomer, kept or not (ShinkaEvolve founds islands on stagnation too).

    Args:
        of: makes the archive of an island; called with its capacity.
        capacity: the most places on all islands together, shared evenly between `most`.
        count: islands at the start.
        most: islands at the end.
        migration: `ring` (each to the next), `star` (the first to and from all others), `random`
            (each to any other) or `none`.
        interval: steps between migrations.
        migrants: programs that an island sends.
        patience: steps without a new best program for which there is one island more.

    Raises:
        UsageError: a setting is out of range, or the archive holds a program at several places.
    """

    def __init__(
        self,
        *,
        of: Callable[..., Archive],
        capacity: int = MAX_CAPACITY,
        count: int = 4,
        most: int = 6,
        migration: str = "ring",
        interval: int = 8,
        migrants: int = 1,
        patience: int = 40,
    ) -> None:
        self._of = of
        self._capacity = checked_capacity(capacity)
        self._most = checked_whole("most", most, 1, min(MAX_ISLANDS, self._capacity), example=6)
        self._count = checked_whole("count", count, 1, self._most, example=min(4, self._most))
        self._migration = checked_choice("migration", migration, ROUTES)
        self._interval = checked_whole("interval", interval, 1, example=8)
        self._migrants = checked_whole("migrants", migrants, 1, example=1)
        self._patience = checked_whole("patience", patience, 1, example=40)
        self._islands = [self._new_island() for _ in range(self._count)]
        inner = getattr(self._islands[0].archive, "offers", ())
        self.offers = frozenset({"islands", *inner})
        self.describes = dict(getattr(self._islands[0].archive, "describes", {}))

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def fires_at(self) -> dict[str, int]:
        """When islands first send each other programs, and when one is founded."""
        found = {} if self._migration == "none" else {"interval": self._interval}
        return found | ({"patience": self._patience} if self._most > self._count else {})

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not; see `evolve.core.protocols.Archive`."""
        homes = self._homes(elite.program)
        known = bool(homes)
        homes = homes or self._settlements(elite)
        best, last = self._best(), max(island.table.latest for island in self._islands)
        touched: dict[Place, Elite | None] = {}
        kept = [place for home in homes if (place := self._settle(home, elite, touched))]
        if best is not None and elite.step > last:
            if self._is_due(elite.step, last, is_kept=bool(kept)):
                self._migrate(elite, homes if kept else [], touched)
            if rank(best) < rank(elite):
                self._found(elite.step - best.step, touched)
        return self._answer(elite, kept, touched, known=known)

    def remove(self, program: str) -> bool:
        homes = self._homes(program)
        for number in homes:
            self._islands[number].archive.remove(program)
            self._islands[number].table.drop(program)
        while len(self._islands) > self._count and not len(self._islands[-1].table):
            self._islands.pop()  # one that was founded and stands empty is nowhere in the slots
        return bool(homes)

    def near_duplicate_of(self, descriptors: Mapping[str, float | str]) -> str | None:
        """A program of some island that one of these descriptors is too near to be judged."""
        ask = [getattr(island.archive, "near_duplicate_of", None) for island in self._islands]
        found = (find(descriptors) for find in ask if find is not None)
        return next((program for program in found if program is not None), None)

    def slots(self) -> dict[str, Elite]:
        held = [
            (rank(elite), _name(number, slot), elite)
            for number, island in enumerate(self._islands)
            for slot, elite in island.table.slots().items()
        ]
        return {name: elite for _, name, elite in sorted(held, key=lambda entry: entry[:2])}

    def restore(self, slots: Mapping[str, Elite]) -> None:
        places = {_place(name): elite for name, elite in slots.items()}
        count = 1 + max((number for number, _ in places), default=0)
        if count > self._most:
            raise UsageError(
                f"archive.most={self._most} is less than the {count} islands of the run; "
                f"set archive.most={count}"
            )
        self._islands = [self._new_island() for _ in range(max(count, self._count))]
        for number, island in enumerate(self._islands):
            own = {slot: elite for (home, slot), elite in places.items() if home == number}
            island.archive.restore(own)
            island.table.restore(own, island.archive.capacity)

    def _new_island(self) -> Island:
        return Island(make_inner(self._of, self._capacity // self._most))

    def _homes(self, program: str) -> list[int]:
        """The islands that hold a program."""
        return [
            number
            for number, island in enumerate(self._islands)
            if island.table.slot_of(program) is not None
        ]

    def _settlements(self, newcomer: Elite) -> list[int]:
        """The islands that a program settles on which none of them holds."""
        turn = newcomer.step % len(self._islands)
        for parent in newcomer.parents:
            if homes := self._homes(parent):
                return [turn if turn in homes else homes[newcomer.step % len(homes)]]
        empty = [n for n, island in enumerate(self._islands) if not len(island.table)]
        return empty or [turn]

    def _settle(
        self, number: int, elite: Elite, touched: dict[Place, Elite | None]
    ) -> Place | None:
        """Offer the elite to an island, noting former holders of changed slots; None if refused."""
        island = self._islands[number]
        offer = island.archive.offer(elite)
        for slot, before in island.table.follow(elite, offer).items():
            touched.setdefault((number, slot), before)
        return (number, offer.slot) if offer.slot is not None else None

    def _is_due(self, sequence: int, last: int, *, is_kept: bool) -> bool:
        """Whether a newcomer sets off a migration; `last` is the latest number that is held.

        Nothing that is held tells of those that were refused, so their own numbers have to.
        """
        if not is_kept:
            return sequence % self._interval == 0
        return sequence // self._interval > last // self._interval

    def _migrate(
        self, newcomer: Elite, spared: list[int], touched: dict[Place, Elite | None]
    ) -> None:
        travellers = [
            (target, elite)
            for source, target in self._routes(newcomer.step)
            if target not in spared
            for elite in self._natives(source, newcomer)
        ]
        for target, elite in travellers:
            self._settle(target, elite, touched)

    def _natives(self, number: int, newcomer: Elite) -> list[Elite]:
        """The best of an island that stand on no other one, as many as it sends, no newcomer."""
        table = self._islands[number].table
        older = (each for each in map(table.at, range(len(table))) if each != newcomer)
        alone = (each for each in older if self._homes(each.program) == [number])
        return list(islice(alone, self._migrants))

    def _routes(self, sequence: int) -> list[tuple[int, int]]:
        """From where to where elites migrate."""
        count = len(self._islands)
        if self._migration == "none" or count == 1:
            return []
        if self._migration == "ring":
            return [(number, (number + 1) % count) for number in range(count)]
        if self._migration == "star":
            return [route for n in range(1, count) for route in ((n, 0), (0, n))]
        draws = stream(0, "migration", sequence)
        return [(n, (n + draws.randrange(1, count)) % count) for n in range(count)]

    def _found(self, stale: int, touched: dict[Place, Elite | None]) -> None:
        """Another island, if there are fewer than the best program's age calls for.

        Args:
            stale: steps from the best program to the newcomer.
            touched: former holders of changed slots.
        """
        if len(self._islands) >= min(self._count + stale // self._patience, self._most):
            return
        draws = stream(0, "founder", stale)
        home = draws.choice([island.table for island in self._islands if len(island.table)])
        self._islands.append(self._new_island())
        self._settle(len(self._islands) - 1, home.at(draws.randrange(len(home))), touched)

    def _best(self) -> Elite | None:
        tables = [island.table for island in self._islands if len(island.table)]
        return min((table.at(0) for table in tables), key=rank, default=None)

    def _answer(
        self,
        elite: Elite,
        kept: Sequence[Place],
        touched: Mapping[Place, Elite | None],
        *,
        known: bool,
    ) -> Offer:
        """The fate of an elite that took these places, and of all places that changed."""
        moves = {
            _name(number, slot): held.program if (held := self._at(number, slot)) else None
            for number, slot in touched
        }
        before = {held.program for held in touched.values() if held is not None}
        lost = {program for program in before if not self._homes(program)}
        if not kept:
            return Offer(AddStatus.NOT_ADDED, None, min(lost, default=None), moves)
        for number in self._homes(elite.program):
            slot = self._islands[number].table.slot_of(elite.program)
            moves[_name(number, slot or "")] = elite.program
        place, loser = kept[0], touched[kept[0]]
        del moves[_name(*place)]
        if loser is not None and loser.program in lost:
            lost = {loser.program}
        status = AddStatus.IMPROVED if known or loser is not None else AddStatus.NEW
        return Offer(status, _name(*place), min(lost, default=None), moves)

    def _at(self, number: int, slot: str) -> Elite | None:
        return self._islands[number].table.get(slot)


def _name(number: int, slot: str) -> str:
    return f"{number}/{slot}"


def _place(name: str) -> Place:
    number, _, slot = name.partition("/")
    if not number.isdigit() or not slot:
        raise UsageError(
            f"archive: slot {name!r} is on no island; the run was made with another archive, "
            "which warm_start=RUN can start from"
        )
    return int(number), slot
