"""What every archive holds to. Subclass, give a `make`, and let pytest collect it.

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


class ArchiveConformance:
    """The invariants of `evolve.core.protocols.Archive`, over random streams of offers."""

    def make(self) -> Archive:
        """A fresh, empty archive; a capacity below 100 makes the suite bite."""
        raise NotImplementedError

    def descriptors(self, rng: random.Random) -> Mapping[str, float | str]:
        """Descriptors of a random program; override where the archive reads others."""
        return {
            "memory_access": rng.choice(["scalar", "vector", "blocked"]),
            "parallelism": rng.choice(["serial", "threads", "simd", "threads+simd"]),
            "block": float(rng.choice([8, 16, 32, 64, 128, 256])),
        }

    def stream(self, seed: int = 0) -> list[Elite]:
        """Elites of about 90 programs; a program comes again with other instances."""
        rng = random.Random(seed)
        return [
            make_elite(
                f"program-{rng.randrange(90)}",
                speedup=math.exp(rng.choice([rng.gauss(0.0, 0.5), 0.0])),
                sequence=sequence,
                descriptors=self.descriptors(rng),
            )
            for sequence in range(OFFERS)
        ]

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
        assert dict(archive.slots()) == {offer.slot: elite}

    def test_it_never_holds_more_than_its_capacity(self) -> None:
        archive = self.make()
        for elite in self.stream():
            archive.offer(elite)
            assert len(archive.slots()) <= archive.capacity

    def test_the_same_offers_give_the_same_slots_in_the_same_order(self) -> None:
        assert list(self.filled(7).slots().items()) == list(self.filled(7).slots().items())

    def test_restoring_is_the_identity_and_the_future_is_the_same(self) -> None:
        for cut in (0, 1, 20, OFFERS // 2):
            lived, restored = self.make(), self.make()
            stream = self.stream(3)
            for elite in stream[:cut]:
                lived.offer(elite)
            restored.restore(dict(sorted(lived.slots().items())))
            assert list(restored.slots().items()) == list(lived.slots().items())
            for elite in stream[cut:]:
                assert restored.offer(elite) == lived.offer(elite)
            assert dict(restored.slots()) == dict(lived.slots())

    def test_restoring_replaces_what_is_held(self) -> None:
        archive = self.filled(1)
        archive.restore({})
        assert dict(archive.slots()) == {}

    def test_the_best_elite_stays_until_a_better_one_comes(self) -> None:
        archive = self.make()
        best: Elite | None = None
        for elite in self.stream(4):
            archive.offer(elite)
            now = best_of(archive.slots().values())
            assert now is not None
            assert best is None or now.fitness.value >= best.fitness.value
            best = now

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
        if not offer:
            assert (offer.slot, offer.evicted) == (None, None)
            assert after == before
            return
        assert offer.slot is not None
        assert after[offer.slot] == elite
        if offer.status is AddStatus.NEW:
            assert offer.slot not in before or offer.evicted is None
            assert elite.program not in {held.program for held in before.values()}
        lost = {held.program for held in before.values()} - {
            held.program for held in after.values()
        }
        assert lost == ({offer.evicted} if offer.evicted else set())

    def test_a_mirror_kept_from_offers_alone_equals_the_slots(self) -> None:
        """What the store does: empty the places of both programs, then fill the named one."""
        archive, mirror = self.make(), dict[str, Elite]()
        for elite in self.stream(8):
            offer = archive.offer(elite)
            if offer and offer.slot is not None:
                gone = {offer.evicted, elite.program}
                mirror = {slot: held for slot, held in mirror.items() if held.program not in gone}
                mirror[offer.slot] = elite
            assert mirror == dict(archive.slots())

    def test_a_program_holds_one_place(self) -> None:
        held = [elite.program for elite in self.filled(9).slots().values()]
        assert len(held) == len(set(held))

    def test_a_held_program_is_replaced_by_its_better_instance_only(self) -> None:
        archive = self.filled(10)
        held = best_of(archive.slots().values())
        assert held is not None
        better = replace(held, fitness=_raised(held.fitness, 0.1), assignment={"BLOCK": 1})
        worse = replace(held, fitness=_raised(held.fitness, -0.1), assignment={"BLOCK": 2})
        assert archive.offer(worse).status is AddStatus.NOT_ADDED
        assert archive.offer(better).status is AddStatus.IMPROVED
        assert better in archive.slots().values()
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


def _raised(fitness: Interval, by: float) -> Interval:
    return Interval(fitness.value + by, fitness.low + by, fitness.high + by)
