"""MemoryBudget for evaluations under way at once.

Invariants:
- never more is taken than there is, unless there is no limit;
- what needs more than there is has all of it;
- who needs more than is left may be passed by those who need less, for some time, then by nobody;
- who stops waiting keeps nobody else from his turn;
- who waits for a turn has nothing meanwhile, so that nobody waits for ever, and once there is a
  place is passed by nobody but who came before and has waited long;
- after its turn it has no more than before;
- who had company, if only for a while, knows it.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from evolve.worker.session.memory_budget import MemoryBudget

pytestmark = pytest.mark.quiet


def entered(room, amount, order, name, leave):
    with room.taken(amount):
        order.append(name)
        leave.wait(10)


def test_no_more_is_taken_than_there_is():
    room, taken, most = MemoryBudget(10), [], []

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
    room, order, leave = MemoryBudget(10), [], threading.Event()
    with ThreadPoolExecutor(2) as threads:
        with room.taken(1000):
            waiting = threads.submit(entered, room, 1, order, "small", leave)
            time.sleep(0.05)
            assert not order
            with room.turn(then):
                time.sleep(0.05)
                assert not order
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
    room, came, leave = MemoryBudget(10, patience_s=patience_s), [], threading.Event()
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
    room, order, leave = MemoryBudget(10, patience_s=60), [], threading.Event()
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


def test_nobody_passes_whose_turn_it_is():
    room, order, leave, holds = (
        MemoryBudget(10, patience_s=60),
        [],
        threading.Event(),
        threading.Event(),
    )

    def timed():
        with room.taken(1):
            holds.set()
            with room.turn(8):
                order.append("timed")

    with ThreadPoolExecutor(2) as threads:
        with room.taken(5):
            turn = threads.submit(timed)
            assert holds.wait(5)
            time.sleep(0.05)
            small = threads.submit(entered, room, 2, order, "small", leave)
            time.sleep(0.05)
            assert not order
        leave.set()
        turn.result(5)
        small.result(5)
    assert order[0] == "timed"


def test_what_a_turn_leaves_is_the_next_ones_and_not_who_came_meanwhile():
    room, order, leave, ends = (
        MemoryBudget(10, patience_s=60),
        [],
        threading.Event(),
        threading.Event(),
    )

    def timed(name):
        with room.taken(1), room.turn(8):
            order.append(name)
            ends.wait(10)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(timed, "first")
        while not order:
            time.sleep(0.01)
        check = threads.submit(entered, room, 6, order, "check", leave)
        time.sleep(0.05)
        second = threads.submit(timed, "second")
        time.sleep(0.05)
        assert order == ["first"]
        ends.set()
        leave.set()
        for one in (first, second, check):
            one.result(5)
    assert order == ["first", "second", "check"]


def test_who_waits_for_a_place_lets_others_have_the_room():
    room, order, leave, ends = (
        MemoryBudget(10, patience_s=60),
        [],
        threading.Event(),
        threading.Event(),
    )

    def timed():
        with room.taken(3), room.turn(3):
            order.append("timed")
            ends.wait(10)

    leave.set()
    with ThreadPoolExecutor(3) as threads:
        turns = [threads.submit(timed) for _ in range(2)]
        while not order:
            time.sleep(0.01)
        threads.submit(entered, room, 7, order, "check", leave).result(5)
        assert order == ["timed", "check"]
        ends.set()
        for turn in turns:
            turn.result(5)
    assert order == ["timed", "check", "timed"]


def test_who_has_waited_long_goes_before_a_turn_that_came_later():
    room, order, leave = MemoryBudget(10, patience_s=0.01), [], threading.Event()

    holds, goes_on = threading.Event(), threading.Event()

    def timed():
        with room.taken(1):
            holds.set()
            goes_on.wait(10)
            with room.turn(8):
                order.append("timed")

    leave.set()
    with ThreadPoolExecutor(2) as threads:
        with room.taken(5):
            turn = threads.submit(timed)
            assert holds.wait(5)
            large = threads.submit(entered, room, 9, order, "large", leave)
            time.sleep(0.05)
            goes_on.set()
            time.sleep(0.05)
            assert not order
        large.result(5)
        turn.result(5)
    assert order == ["large", "timed"]


@pytest.mark.timeout(30)
def test_who_becomes_impatient_goes_without_anybodys_word():
    room, order, leave, ends = (
        MemoryBudget(10, patience_s=0.5),
        [],
        threading.Event(),
        threading.Event(),
    )
    holds = threading.Event()

    def timed():
        with room.taken(1):
            holds.set()
            with room.turn(8):
                order.append("timed")

    leave.set()
    with ThreadPoolExecutor(3) as threads:
        with room.taken(2):
            first = threads.submit(entered, room, 3, order, "first", ends)
            while not order:
                time.sleep(0.01)
            check = threads.submit(entered, room, 6, order, "check", leave)
            time.sleep(0.05)
            turn = threads.submit(timed)
            assert holds.wait(5)
            time.sleep(0.05)
        assert order == ["first"]  # the turn is next, and does not fit; the check would
        check.result(5)
        assert order == ["first", "check"]
        ends.set()
        first.result(5)
        turn.result(5)


@pytest.mark.timeout(60)
def test_nobody_waits_for_ever_however_short_patience_is():
    room = MemoryBudget(10, places=2, patience_s=0.005)

    def work(number):
        for step in range(40):
            with room.taken(1 + (number + step) % 10), room.turn(1 + (number * step) % 11):
                time.sleep(0.001)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(12)))
    with room.taken(10):
        pass


@pytest.mark.timeout(30)
def test_who_is_alone_does_not_wait_for_a_place():
    room, done, ends = MemoryBudget(10), [], threading.Event()

    def timed():
        with room.taken(2), room.turn(0):
            done.append("timed")
            ends.wait(60)

    with ThreadPoolExecutor(1) as threads:
        holds = threads.submit(timed)
        while not done:
            time.sleep(0.01)
        with room.taken(10), room.turn(8):
            done.append("alone")
            assert not holds.done()
        ends.set()
        holds.result(5)
    assert done == ["timed", "alone"]


@pytest.mark.parametrize(("of_turn", "left"), [(2, 8), (8, 6)])
def test_after_its_turn_it_has_no_more_than_it_had_before_or_in_it(of_turn, left):
    room, order, leave = MemoryBudget(10), [], threading.Event()
    leave.set()
    with ThreadPoolExecutor(2) as threads, room.taken(4):
        with room.turn(of_turn):
            pass
        more = threads.submit(entered, room, left + 1, order, "more", leave)
        threads.submit(entered, room, left, order, "beside", leave).result(5)
        assert order == ["beside"]
    more.result(5)


def test_without_a_limit_nobody_waits():
    room = MemoryBudget(0)
    with room.taken(1 << 40), room.taken(1 << 40):
        pass


def test_who_stops_waiting_keeps_nobody_from_his_turn(monkeypatch):
    room = MemoryBudget(10)

    def interrupted(_predicate, _timeout):
        raise KeyboardInterrupt

    with room.taken(10), monkeypatch.context() as patch:
        patch.setattr(room._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), room.taken(1):
            pass
    with room.taken(10):
        pass


def test_all_who_want_a_turn_get_it_in_the_end():
    room, done, together = MemoryBudget(10), [], threading.Barrier(3)

    def work(name):
        with room.taken(3):
            together.wait(10)
            with room.turn(8):
                done.append(name)
                time.sleep(0.01)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, "abc"))
    assert sorted(done) == ["a", "b", "c"]
    with room.taken(10), room.turn(10):  # all of it is there again
        pass
    with room.taken(1), room.turn(10):  # and the place
        pass


def test_who_has_nothing_may_have_a_turn():
    room = MemoryBudget(10)
    with room.turn(8):
        pass
    with room.taken(10):
        pass


def test_who_had_company_since_he_was_let_in_knows_it_and_nobody_else_does():
    room, order, leave, goes_on = MemoryBudget(10), [], threading.Event(), threading.Event()
    leave.set()

    def stays():
        with room.taken(4):
            before = room.had_concurrent
            order.append("stays")
            goes_on.wait(10)
            with room.turn(6):
                return before, room.had_concurrent

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(stays)
        while not order:
            time.sleep(0.01)
        with room.taken(2):
            assert room.had_concurrent
        goes_on.set()
        assert first.result(5) == (False, True)
        goes_on.clear()
        alone = threads.submit(stays)
        goes_on.set()
        assert alone.result(5) == (False, False)
    with room.taken(10):
        assert not room.had_concurrent


def test_where_there_is_no_limit_nobody_had_concurrent():
    room, order, leave = MemoryBudget(0), [], threading.Event()
    leave.set()
    with ThreadPoolExecutor(1) as threads, room.taken(5):
        threads.submit(entered, room, 5, order, "other", leave).result(5)
        assert order == ["other"]
        assert not room.had_concurrent
