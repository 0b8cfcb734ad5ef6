"""Room for evaluations under way at once.

Invariants:
- never more is taken than there is, unless there is no limit;
- what needs more than there is has all of it;
- who needs more than is left may be passed by those who need less, for some time, then by nobody;
- who stops waiting keeps nobody else from his turn;
- who wants more for what comes next has nothing while it waits, so that nobody waits for ever, and
  is passed by nobody.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from evolve.worker.room import Room

pytestmark = pytest.mark.quiet


def entered(room, amount, order, name, leave):
    with room.taken(amount):
        order.append(name)
        leave.wait(10)


def test_no_more_is_taken_than_there_is():
    room, taken, most = Room(10), [], []

    def work(amount):
        with room.taken(amount):
            taken.append(amount)
            most.append(sum(taken))
            time.sleep(0.001)
            taken.remove(amount)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, [1, 5, 3, 10, 7, 2] * 10))
    assert max(most) <= 10
    assert not taken


@pytest.mark.parametrize("then", [1000, 2])
def test_what_needs_more_than_there_is_has_all_of_it_and_keeps_it(then):
    room, order, leave = Room(10), [], threading.Event()
    with ThreadPoolExecutor(2) as threads:
        with room.taken(1000):
            waiting = threads.submit(entered, room, 1, order, "small", leave)
            time.sleep(0.05)
            assert not order
            room.change(then)
            time.sleep(0.05)
            assert not order
        leave.set()
        waiting.result(5)
    assert order == ["small"]


@pytest.mark.parametrize(
    ("patience_s", "goes_in", "order"),
    [(0.01, [], ["large", "small"]), (60, ["small"], ["small", "large"])],
    ids=["has waited long", "has not"],
)
def test_who_needs_much_is_passed_by_who_needs_little_until_it_has_waited_long(
    patience_s, goes_in, order
):
    room, came, leave = Room(10, patience_s), [], threading.Event()
    leave.set()
    with ThreadPoolExecutor(2) as threads:
        with room.taken(5):
            large = threads.submit(entered, room, 8, came, "large", leave)
            time.sleep(0.05)
            small = threads.submit(entered, room, 2, came, "small", leave)
            time.sleep(0.05)
            assert came == goes_in
        large.result(5)
        small.result(5)
    assert came == order


def test_of_two_that_fit_the_first_to_come_goes_first():
    room, order, leave = Room(10, patience_s=60), [], threading.Event()
    leave.set()
    with ThreadPoolExecutor(4) as threads:
        with room.taken(10):
            waiting = []
            for name in "abcd":
                waiting.append(threads.submit(entered, room, 6, order, name, leave))
                time.sleep(0.02)
        for one in waiting:
            one.result(5)
    assert order == list("abcd")


def test_nobody_passes_who_wants_more_for_what_comes_next():
    room, order, leave, holds = Room(10, patience_s=60), [], threading.Event(), threading.Event()

    def grow():
        with room.taken(1):
            holds.set()
            room.change(8)
            order.append("grown")

    with ThreadPoolExecutor(2) as threads:
        with room.taken(5):
            grown = threads.submit(grow)
            assert holds.wait(5)
            time.sleep(0.05)
            small = threads.submit(entered, room, 2, order, "small", leave)
            time.sleep(0.05)
            assert not order
        leave.set()
        grown.result(5)
        small.result(5)
    assert order[0] == "grown"


@pytest.mark.timeout(30)
def test_who_is_alone_does_not_wait_for_a_place_of_somebody_who_waits_for_room():
    room, place, done = Room(10), threading.Semaphore(0), []

    def timed():
        with room.taken(2), room.turn(place, 8):
            done.append("timed")

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(timed)
        with room.taken(10):  # there is that much once the other waits for a place
            place.release()
            time.sleep(0.05)  # it has the place, and waits for room
            with room.turn(place, 8):
                done.append("alone")
        waiting.result(5)
    assert done == ["alone", "timed"]


def test_who_waits_for_a_place_takes_no_room():
    room, place, free = Room(10), threading.Semaphore(0), threading.Event()

    def waits():
        with room.taken(10), room.turn(place, 10):
            pass

    def waits_with_less():
        with room.taken(9), room.turn(place, 10):
            free.set()

    with ThreadPoolExecutor(2) as threads:
        threads.submit(waits).result(5)  # has all, so needs no place
        waiting = threads.submit(waits_with_less)
        time.sleep(0.05)
        with room.taken(10):
            assert not free.is_set()
        place.release()
        waiting.result(5)


def test_without_a_limit_nobody_waits():
    room = Room(0)
    with room.taken(1 << 40), room.taken(1 << 40):
        pass


def test_who_stops_waiting_keeps_nobody_from_his_turn(monkeypatch):
    room = Room(10)

    def interrupted(_predicate):
        raise KeyboardInterrupt

    with room.taken(10), monkeypatch.context() as patch:
        patch.setattr(room._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), room.taken(1):
            pass
    with room.taken(10):
        pass


def test_all_who_want_more_for_what_comes_next_get_it_in_the_end():
    room, done, together = Room(10), [], threading.Barrier(3)

    def work(name):
        with room.taken(3):
            together.wait(10)
            room.change(8)
            done.append(name)
            time.sleep(0.01)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, "abc"))
    assert sorted(done) == ["a", "b", "c"]
    with room.taken(10):  # all of it is there again
        pass
