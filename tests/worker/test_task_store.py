"""What is kept of tasks: which things stay, which give way, and how often each is made.

Invariants:
- what several ask for at once is made once, and counted once;
- there are never more bytes than are allowed, but for one thing that is too large to be kept;
- what is passing drives out nothing that took longer to make, and no more than a third of a full
  store.
"""

import random
import threading
import time
import weakref
from functools import partial

import pytest

from evolve.worker.session.cache import Store


def test_what_several_ask_for_at_once_is_made_once_and_counted_once():
    store, made, found = Store(100), [], []

    def make():
        made.append(1)
        time.sleep(0.05)
        return object()

    threads = [
        threading.Thread(target=lambda: found.append(store.get(("key",), make, lambda _: 45)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(set(map(id, found))) == 1
    other = store.get(("other",), object, lambda _: 45)
    assert store.get(("other",), object, lambda _: 45) is other  # 90 of 100: both are held
    assert store.get(("key",), object, lambda _: 45) is found[0]


def test_what_takes_half_of_the_memory_is_not_kept_and_drives_nothing_else_out():
    store = Store(100)
    small = store.get(("small",), object, lambda _: 40)
    large = store.get(("large",), object, lambda _: 60, about=60)
    assert store.get(("large",), object, lambda _: 60, about=60) is not large
    assert store.get(("small",), object, lambda _: 40) is small


def test_what_is_kept_makes_room_before_something_of_known_size_is_made():
    class Thing:
        alive = 0

        def __init__(self):
            Thing.alive += 1
            self.beside = Thing.alive

        def __del__(self):
            Thing.alive -= 1

    store = Store(100)
    for name in range(6):
        made = store.get((name,), Thing, lambda _: 40, about=40)
        assert made.beside <= 2  # itself, and one that stays
        del made
    assert Thing.alive == 2


def sized(thing):
    return thing[1]


@pytest.mark.parametrize("passes", [True, False], ids=["passing", "kept"])
def test_what_is_passing_drives_out_nothing_that_took_longer_to_make(passes):
    """As it would, now and then, if it were kept like all else."""
    store, made = Store(100), []

    def slowly(name):
        made.append(name)
        time.sleep(0.01)
        return name, 10

    names = "abcdefg"
    for turn in range(5):
        for name in names:
            store.get((name,), partial(slowly, name), sized)
        for number in range(20):
            call = store.passing if passes else store.get
            call((turn, number), lambda: (0, 10), sized, 10)
    assert (made == list(names)) is passes


def test_a_full_store_loses_no_more_than_a_third_to_what_is_passing():
    store = Store(900)
    names = [("slow", number) for number in range(9)]
    for name in names:
        store.get(name, lambda: time.sleep(0.01) or (0, 100), sized)
    assert all(store.keeps(name) for name in names)
    for number, size in enumerate((200, *20 * (100,))):
        passing = (number, size)
        store.passing(("quick", number), lambda passing=passing: passing, sized, size)
        assert sum(store.keeps(name) for name in names) >= 6


def test_what_passes_and_is_larger_than_the_store_costs_no_more_than_a_third():
    store = Store(900)
    names = [("slow", number) for number in range(6)]
    for name in names:
        store.get(name, lambda: time.sleep(0.01) or (0, 90), sized)
    store.passing(("huge",), lambda: (0, 1000), sized, 0)
    store.get(("small",), lambda: (0, 1), sized)
    assert all(store.keeps(name) for name in names)


def test_where_there_is_room_what_is_passing_stays():
    store = Store(100)
    found = [store.passing((name,), lambda: ([], 20), sized, 20) for name in "abc"]
    assert all(store.keeps((name,)) for name in "abc")
    store.passing(("more",), lambda: ([], 20), sized, 20)  # and a third is left for others
    again = [store.passing((name,), lambda: ([], 20), sized, 20) for name in "abc"]
    assert sum(one is other for one, other in zip(found, again, strict=True)) >= 2


def test_a_block_is_made_once_for_sides_that_are_timed_on_it_in_turns():
    """If each goes on where it would have two turns in a row, four of them are there at once."""
    store, made = Store(1500), []

    def block(number):
        def make():
            made.append(number)
            return number, 100

        return store.passing((number,), make, sized, 100)

    for number in range(5):  # take longer to make than any block
        store.get(("kept", number), lambda: time.sleep(0.01) or (0, 200), sized)
    for first in range(-2, 22, 2):  # in turns a side goes on from here
        for number in range(max(first, 0), first + 4):
            block(number)
    assert made == list(range(24))


def test_all_that_is_there_has_no_more_bytes_than_are_allowed():
    store, draws = Store(1000), random.Random(0)
    alive = weakref.WeakSet()

    class Thing:
        size = 0

    def make(size):
        thing = Thing()
        thing.size = size
        assert sum(other.size for other in alive) + size <= 1000
        alive.add(thing)
        return thing

    for number in range(300):
        size = draws.randrange(1, 240)
        call = draws.choice([store.passing, store.get])
        call((number,), partial(make, size), lambda thing: thing.size, size)


def test_what_is_too_large_to_be_kept_is_there_until_the_next():
    store, made = Store(100), []

    def make(name):
        made.append(name)
        return [name]

    for name in ("a", "a", "b", "b", "a"):
        assert store.passing((name,), partial(make, name), lambda _: 60, 60) == [name]
    assert made == ["a", "b", "a"]
