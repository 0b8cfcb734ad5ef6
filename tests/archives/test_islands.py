"""Islands.

Invariants:
1. Lines stay apart but for migration: a child lives where its main parent does.
2. Migration fires within an interval of tickets in which anything is kept, along its routes, with
   copies, and never changes what the best program is.
3. A new island is founded when the best has stood for `patience` tickets, and not before; also
   where no newcomer is good enough to be kept.
4. What an island turns away before it is judged, all together do.
"""

import random
from dataclasses import replace
from functools import partial

import pytest

from archives import Islands, Novelty, TopK
from archives.distances import Numbers
from evolve.core.errors import UsageError
from evolve.core.protocols import best_of
from evolve.testing.archives import mirrored
from evolve.testing.parts import make_elite

FAR = 10_000  # tickets: never in these tests


def islands(**settings):
    quiet = {"of": partial(TopK, capacity=5), "interval": FAR, "patience": FAR}
    return Islands(**quiet | settings)


def child(program: str, parent: str | None, sequence: int, speedup: float = 1.0):
    elite = make_elite(program, speedup=speedup, sequence=sequence)
    return replace(elite, parents=() if parent is None else (parent,))


def homes(archive, program: str) -> set[int]:
    return {int(s[0]) for s, held in archive.slots().items() if held.program == program}


def test_the_first_program_settles_on_every_island_and_later_ones_in_turn():
    archive = islands(count=3, most=3)
    for number in range(5):
        archive.offer(child(f"seed-{number}", None, number))
    assert homes(archive, "seed-0") == {0, 1, 2}
    assert [homes(archive, f"seed-{number}") for number in (1, 2, 3, 4)] == [{1}, {2}, {0}, {1}]


def test_children_of_a_program_on_all_islands_are_spread_and_their_children_stay():
    archive = islands(count=3, most=3)
    archive.offer(child("seed", None, 0))
    for number in range(1, 4):
        archive.offer(child(f"child-{number}", "seed", number))
        archive.offer(child(f"grandchild-{number}", f"child-{number}", number + 10))
    for number in range(1, 4):
        assert homes(archive, f"child-{number}") == {number % 3}
        assert homes(archive, f"grandchild-{number}") == {number % 3}


def test_a_child_of_an_unknown_main_parent_lives_with_its_other_parent():
    archive = islands(count=2, most=2)
    archive.offer(child("seed", None, 0))
    archive.offer(child("left", "seed", 2))
    crossed = replace(child("crossed", None, 3), parents=("gone", "left"))
    archive.offer(crossed)
    assert homes(archive, "crossed") == homes(archive, "left") == {0}


@pytest.mark.parametrize(
    ("migration", "sequence", "reached"),
    [
        ("none", 6, {1}),
        ("ring", 6, {1, 2}),
        ("ring", 5, {1}),
        ("star", 5, {0, 1}),
        ("star", 6, {1}),
    ],
)
def test_the_best_of_an_island_migrates_along_the_routes(migration, sequence, reached):
    """The island that the newcomer settles on (`sequence` modulo 3) receives nobody."""
    archive = islands(count=3, most=3, migration=migration, interval=5)
    archive.offer(child("seed", None, 0))
    archive.offer(child("best", "seed", 1, speedup=3.0))
    assert homes(archive, "best") == {1}
    archive.offer(child("late", "seed", sequence, speedup=0.5))
    assert homes(archive, "late") == {sequence % 3}
    assert homes(archive, "best") == reached


def test_random_migration_reaches_every_other_island_in_the_end():
    archive = islands(count=4, most=4, migration="random", interval=1)
    archive.offer(child("seed", None, 0))
    reached = set()
    for number in range(1, 60):
        archive.offer(child(f"p{number}", "seed", number, speedup=1 + number))
        reached |= {tuple(sorted(homes(archive, f"p{older}"))) for older in range(1, number)}
    assert {(home, other) for home in range(4) for other in range(home + 1, 4)} <= reached


@pytest.mark.parametrize("migration", ["ring", "star", "random"])
def test_a_migrant_is_not_sent_on_and_no_program_comes_to_hold_all_islands(migration):
    """In 32 of 40 rounds of Kernel-Smith one program had come to stand on four of five."""
    archive = islands(count=5, most=5, migration=migration, interval=2)
    archive.offer(child("seed", None, 0))
    archive.offer(child("best", "seed", 1, speedup=9.0))
    for number in range(2, 40):
        archive.offer(child(f"p{number}", "seed", number, speedup=1 + number / 100))
    most = 5 if migration == "star" else 2  # from the hub to all others, at once
    assert 1 < len(homes(archive, "best")) <= most
    sent = [f"p{number}" for number in range(2, 40) if len(homes(archive, f"p{number}")) > 1]
    assert sent, "others migrate in its place"


def test_migration_fires_in_a_run_of_forty_tickets_by_default():
    archive = Islands(of=TopK)
    rng = random.Random(3)
    for number in range(40):
        parent = f"p{rng.randrange(number)}" if number else None
        archive.offer(child(f"p{number}", parent, number, speedup=1 + number / 10))
    copies = [held.program for held in archive.slots().values() if held.program != "p0"]
    assert len(copies) - len(set(copies)) >= 4


def test_a_migrant_is_known_by_the_same_elite_on_every_island():
    archive = islands(count=2, most=2, interval=5)
    archive.offer(child("seed", None, 0))
    archive.offer(child("best", "seed", 1, speedup=3.0))
    archive.offer(child("late", "seed", 5, speedup=2.0))
    archive.offer(child("later", "seed", 10, speedup=2.0))
    assert homes(archive, "best") == {0, 1}
    lucky_no_more = replace(child("best", "seed", 1, speedup=1.1), evaluations=4)
    offer = archive.offer(lucky_no_more)
    assert offer.moves == dict.fromkeys(offer.moves, "best") != {}
    known = [held for held in archive.slots().values() if held.program == "best"]
    assert known == [lucky_no_more, lucky_no_more]


@pytest.mark.parametrize("first", [0, 100])
def test_an_island_is_founded_when_the_best_has_stood_for_long(first):
    archive = islands(count=2, most=3, patience=20)
    archive.offer(child("seed", None, first, speedup=2.0))
    for number in (5, 10, 19):
        archive.offer(child(f"p{number}", "seed", first + number))
        assert homes(archive, "seed") | homes(archive, f"p{number}") <= {0, 1}
    offer = archive.offer(child("p21", "seed", first + 21))
    assert any(slot.startswith("2/") for slot in offer.moves)
    assert {int(slot[0]) for slot in archive.slots()} == {0, 1, 2}
    for number in (39, 41, 62):
        archive.offer(child(f"p{number}", "seed", first + number))
    assert {int(slot[0]) for slot in archive.slots()} == {0, 1, 2}, "no more than `most`"


def test_islands_are_founded_although_every_newcomer_is_refused():
    archive = islands(of=partial(TopK, capacity=3), count=2, most=4, patience=10)
    archive.offer(child("seed", None, 0, speedup=9.0))
    for number in range(1, 7):
        archive.offer(child(f"good-{number}", "seed", number, speedup=5.0))
    mirror = archive.slots()
    for number in range(7, 60):
        elite = child(f"p{number}", "good-1", number)
        offer = archive.offer(elite)
        mirror = mirrored(mirror, elite, offer)
        assert not offer or number > 10
        founded = min(number // 10, 2)
        assert {int(slot[0]) for slot in archive.slots()} == set(range(2 + founded))
    assert mirror == archive.slots()


def test_migration_fires_although_every_newcomer_is_refused():
    archive = islands(of=partial(TopK, capacity=2), count=2, most=2, interval=10)
    for number, island in enumerate((0, 1, 0, 1)):
        archive.offer(child(f"seed-{number}", None, number, speedup=5.0 + number))
        assert homes(archive, f"seed-{number}") == ({0, 1} if number == 0 else {island})
    archive.offer(child("seed-4", None, 5, speedup=9.0))
    before = homes(archive, "seed-4")
    for number in range(6, 22):
        archive.offer(child(f"p{number}", None, number))
    assert len(before) == 1
    assert homes(archive, "seed-4") == {0, 1}


def test_no_island_is_founded_while_programs_get_better():
    archive = islands(count=2, most=5, patience=10)
    archive.offer(child("p0", None, 0))
    for number in range(1, 100):
        archive.offer(child(f"p{number}", f"p{number - 1}", number, speedup=1 + number))
    assert {int(slot[0]) for slot in archive.slots()} == {0, 1}


def test_all_islands_together_stay_within_the_capacity():
    archive = Islands(of=TopK, capacity=20, count=3, most=4, interval=2, patience=5)
    for number in range(300):
        archive.offer(child(f"p{number}", f"p{number // 2}", number, speedup=1 + number % 7))
    assert len(archive.slots()) == 20
    best = best_of(archive.slots().values())
    assert best is not None
    assert best.program == "p6"


def test_a_set_capacity_of_an_island_holds_where_it_is_lower():
    archive = islands(of=partial(TopK, capacity=2), count=2, most=2)
    for number in range(20):
        archive.offer(child(f"p{number}", None, number, speedup=1 + number))
    assert len(archive.slots()) == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"count": 0}, r"archive\.count"),
        ({"count": 5, "most": 4}, r"archive\.count must be a whole number from 1 to 4"),
        ({"most": 11}, r"archive\.most must be a whole number from 1 to 10"),
        ({"most": 3, "count": 1, "capacity": 2}, r"archive\.most must be .* from 1 to 2"),
        ({"migration": "mesh"}, "choose one of none, ring, star, random"),
        ({"interval": 0}, r"archive\.interval"),
        ({"migrants": 1.5}, r"archive\.migrants"),
        ({"patience": True}, r"archive\.patience"),
        ({"of": TopK(capacity=3)}, r"archive\.of\._partial_=true"),
        ({"of": partial(TopK, capacity="many")}, r"archive\.capacity"),
        ({"of": partial(Islands, of=TopK)}, "put them outside"),
        ({"of": partial(Novelty, of=partial(Islands, of=TopK))}, "put them outside"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, said):
    with pytest.raises(UsageError, match=said):
        islands(**settings)


def test_slots_of_another_archive_and_of_more_islands_are_refused():
    with pytest.raises(UsageError, match=r"warm_start=RUN"):
        islands().restore({"7": make_elite("p")})
    with pytest.raises(UsageError, match=r"archive\.most=2 is less than the 4 islands"):
        islands(count=2, most=2).restore({"3/0": make_elite("p")})


def test_a_program_that_is_near_one_of_an_island_is_turned_away_before_it_is_judged():
    near = Numbers(descriptors=["block"])
    of = partial(Novelty, of=TopK, epsilon=0.1, distance=near, before_judging=True)
    archive = islands(of=of, count=2, most=2)
    for number, block in enumerate((8.0, 64.0)):
        archive.offer(make_elite(f"p{number}", sequence=number, descriptors={"block": block}))
    assert homes(archive, "p1") == {1}
    assert archive.near_duplicate_of({"block": 64.0}) == "p1"
    assert archive.near_duplicate_of({"block": 500.0}) is None
    assert islands().near_duplicate_of({"block": 64.0}) is None


@pytest.mark.parametrize(
    ("settings", "fires"),
    [
        ({"migration": "ring", "count": 2, "most": 2}, {"interval": 8}),
        ({"migration": "none", "count": 2, "most": 2}, {}),
        ({"migration": "none", "count": 2, "most": 3}, {"patience": 40}),
        ({"migration": "ring", "count": 2, "most": 3}, {"interval": 8, "patience": 40}),
    ],
)
def test_islands_say_when_programs_first_migrate_and_when_one_more_is_founded(settings, fires):
    assert islands(interval=8, patience=40, **settings).fires_at == fires
