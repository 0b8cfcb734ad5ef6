"""The requirements for every archive. Subclass, give a `make`, and let pytest collect it.

class TestMine(ArchiveConformance):
    def make(self):
        return MyArchive(capacity=8)
"""

import math
import random
from collections.abc import Mapping
from dataclasses import replace

from evolve.core.measurement import Interval
from evolve.core.protocols import AddStatus, Archive, Elite, Offer, best_of
from evolve.testing.parts import make_elite

OFFERS = 300
PROGRAMS = 90


def mirrored(slots: Mapping[str, Elite], elite: Elite, offer: Offer) -> dict[str, Elite]:
    """The slots after an offer, from those before it and the answer alone, as `Offer` promises.

    The store and the engine do the same.
    """
    known = {held.program: held for held in slots.values()} | {elite.program: elite}
    leaving = {offer.evicted, elite.program if offer else None}
    after = {slot: held for slot, held in slots.items() if held.program not in leaving}
    if offer.slot is not None:
        after[offer.slot] = elite
    for slot, program in offer.moves.items():
        after.pop(slot, None)
        if program is not None:
            after[slot] = known[program]
    return after


class ArchiveConformance:
    """The invariants of `evolve.core.protocols.Archive`, over random streams of offers."""

    def make(self) -> Archive:
        """A fresh, empty archive; a capacity below 100 makes the suite bite."""
        raise NotImplementedError

    def descriptors(self, rng: random.Random) -> Mapping[str, float | str]:
        """Descriptors of a random program; override if the archive reads others."""
        return {
            "memory_access": rng.choice(["scalar", "vector", "blocked"]),
            "parallelism": rng.choice(["serial", "threads", "simd", "threads+simd"]),
            "block": float(rng.choice([8, 16, 32, 64, 128, 256])),
        }

    def stream(self, seed: int = 0) -> list[Elite]:
        """Elites of at most `PROGRAMS` programs, which are offered again with later facts.

        Verdicts arrive a little out of order; two out of three programs have parents.
        """
        rng = random.Random(seed)
        return [self._elite(rng.randrange(PROGRAMS), sequence, rng) for sequence in range(OFFERS)]

    def _elite(self, number: int, sequence: int, rng: random.Random) -> Elite:
        elite = make_elite(
            f"program-{number}",
            speedup=math.exp(rng.choice([rng.gauss(0.0, 0.5), 0.0])),
            sequence=max(sequence + rng.randrange(-3, 4), 0),
            descriptors=self.descriptors(rng),
        )
        parents = (f"program-{number // 3}",) if number % 3 else ()
        return replace(elite, parents=parents, evaluations=rng.choice([1, 1, 2, 5]))

    def filled(self, seed: int = 0) -> Archive:
        archive = self.make()
        for elite in self.stream(seed):
            archive.offer(elite)
        return archive

    def test_it_is_an_archive_and_starts_empty(self) -> None:
        archive = self.make()
        assert isinstance(archive, Archive)
        assert dict(archive.slots()) == {}
        assert archive.capacity >= 1

    def test_the_first_offer_takes_an_empty_place(self) -> None:
        archive, (elite, *_) = self.make(), self.stream()
        offer = archive.offer(elite)
        assert offer.status is AddStatus.NEW
        assert offer.evicted is None
        assert offer.slot in archive.slots()
        assert all(held == elite for held in archive.slots().values())

    def test_it_never_holds_more_than_its_capacity(self) -> None:
        archive = self.make()
        for elite in self.stream():
            archive.offer(elite)
            assert len(archive.slots()) <= archive.capacity

    def test_the_same_offers_give_the_same_slots_in_the_same_order(self) -> None:
        assert list(self.filled(7).slots().items()) == list(self.filled(7).slots().items())

    def test_restoring_is_the_identity_and_the_future_is_the_same(self) -> None:
        for cut in (0, 1, 2, 3, 20, OFFERS // 2):
            lived, restored = self.make(), self.make()
            stream = self.stream(3)
            for elite in stream[:cut]:
                lived.offer(elite)
            restored.restore(dict(sorted(lived.slots().items())))
            assert list(restored.slots().items()) == list(lived.slots().items())
            for elite in stream[cut:]:
                assert restored.offer(elite) == lived.offer(elite)
            assert dict(restored.slots()) == dict(lived.slots())

    def test_a_program_can_be_taken_out_and_the_others_stay(self) -> None:
        """The engine's treatment of a refuted program."""
        archive = self.filled(12)
        for _ in range(len(archive.slots())):
            best = best_of(archive.slots().values())
            if best is None:
                break
            slots = archive.slots()
            kept = {slot: held for slot, held in slots.items() if held.program != best.program}
            assert archive.remove(best.program)
            assert dict(archive.slots()) == kept
            assert not archive.remove(best.program)
            assert dict(archive.slots()) == kept
        for elite in self.stream(13):
            before = dict(archive.slots())
            offer = archive.offer(elite)
            assert dict(archive.slots()) == mirrored(before, elite, offer)

    def test_without_a_program_the_future_is_that_of_a_restored_archive(self) -> None:
        stream = self.stream(14)
        lived, restored = self.make(), self.make()
        for elite in stream[: OFFERS // 2]:
            lived.offer(elite)
            if elite.sequence % 3 == 0:
                lived.remove(elite.program)
        restored.restore(lived.slots())
        for elite in stream[OFFERS // 2 :]:
            assert restored.offer(elite) == lived.offer(elite)
        assert dict(restored.slots()) == dict(lived.slots())

    def test_restoring_replaces_what_is_held(self) -> None:
        archive = self.filled(1)
        archive.restore({})
        assert dict(archive.slots()) == {}

    def test_the_best_elite_stays_until_a_better_one_comes(self) -> None:
        archive = self.make()
        for elite in self.stream(4):
            best = best_of(archive.slots().values())
            archive.offer(elite)
            now = best_of(archive.slots().values())
            assert now is not None
            if best is not None and best.program != elite.program:
                assert now.fitness.value >= best.fitness.value

    def test_offering_the_same_elite_again_adds_nothing(self) -> None:
        archive = self.make()
        for elite in self.stream(5):
            if archive.offer(elite):
                before = dict(archive.slots())
                assert archive.offer(elite).status is AddStatus.NOT_ADDED
                assert dict(archive.slots()) == before

    def test_an_offer_says_what_became_of_it(self) -> None:
        archive = self.make()
        for elite in self.stream(6):
            before = dict(archive.slots())
            offer = archive.offer(elite)
            self._check_offer(offer, elite, before, dict(archive.slots()))

    def _check_offer(
        self, offer: Offer, elite: Elite, before: dict[str, Elite], after: dict[str, Elite]
    ) -> None:
        held, left = _programs(before), _programs(after)
        if not offer:
            assert offer.slot is None
            assert elite.program not in left - held
        else:
            assert offer.slot is not None
            assert after[offer.slot] == elite
        if offer.status is AddStatus.NEW:
            assert offer.slot not in before
            assert elite.program not in held
        if held - left:
            assert offer.evicted in held - left
        else:
            assert offer.evicted is None
        named = {before[slot].program for slot in (offer.slot, *offer.moves) if slot in before}
        assert held - left <= named | {offer.evicted}

    def test_a_mirror_kept_from_offers_alone_equals_the_slots(self) -> None:
        """As the store does it."""
        archive, mirror = self.make(), dict[str, Elite]()
        for elite in self.stream(8):
            mirror = mirrored(mirror, elite, archive.offer(elite))
            assert mirror == dict(archive.slots())

    def test_all_places_of_a_program_hold_the_same_elite(self) -> None:
        archive = self.make()
        for elite in self.stream(9):
            archive.offer(elite)
            known: dict[str, Elite] = {}
            for held in archive.slots().values():
                assert known.setdefault(held.program, held) == held

    def test_what_is_known_of_a_held_program_replaces_what_was(self) -> None:
        """Upwards and downwards: a lucky measurement does not stay."""
        archive = self.filled(10)
        for by, assignment in ((0.1, {"BLOCK": 1}), (-0.2, {"BLOCK": 2}), (-0.1, {"BLOCK": 2})):
            held = best_of(archive.slots().values())
            assert held is not None
            now = replace(held, fitness=_raised(held.fitness, by), assignment=assignment)
            assert archive.offer(now).status is AddStatus.IMPROVED
            assert now in archive.slots().values()
            assert held not in archive.slots().values()

    def test_odd_descriptors_are_no_error(self) -> None:
        archive = self.make()
        odd: list[dict[str, float | str]] = [
            {},
            dict.fromkeys(self.descriptors(random.Random(0)), math.nan),
            dict.fromkeys(self.descriptors(random.Random(0)), math.inf),
            dict.fromkeys(self.descriptors(random.Random(0)), "no|such=value#1"),
        ]
        for number, descriptors in enumerate(odd):
            archive.offer(make_elite(f"odd-{number}", descriptors=descriptors))
        assert archive.slots()

    def test_slots_are_a_snapshot(self) -> None:
        archive = self.filled(11)
        seen = archive.slots()
        copy = dict(seen)
        archive.offer(make_elite("late", speedup=1e6, sequence=OFFERS))
        assert dict(seen) == copy


def _programs(slots: Mapping[str, Elite]) -> set[str]:
    return {held.program for held in slots.values()}


def _raised(fitness: Interval, by: float) -> Interval:
    return Interval(fitness.value + by, fitness.low + by, fitness.high + by)
