"""The end of a turn with the device: stopped processes are checked, then go on.

Invariants:
- what was timed while a stopped process worked does not count;
- the end of a turn wakes nothing in the next one, and work after a turn is no work in it;
- a thread that has the device waits for no end of another turn.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from evolve.languages.cpp import CPP
from evolve.worker.base.infra import CrowdedFault
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.session.exclusive_device import DeviceLock
from tests.worker.turns import TwoSeats, states

pytestmark = pytest.mark.quiet


class Sleeper:
    """A process that uses so much of a processor whenever it is looked at, stopped or not."""

    alive = has_candidate = True
    is_frozen = False

    def __init__(self, seconds):
        self.seconds, self.used = seconds, 0.0

    def freeze(self):
        self.is_frozen = True

    def thaw(self):
        self.is_frozen = False

    def cpu_seconds(self):
        assert self.is_frozen
        self.used += self.seconds
        return self.used


def test_what_was_timed_while_a_stopped_process_worked_does_not_count():
    device_lock, sleeper, woken = (
        DeviceLock(TwoSeats(), HostLock("cpu")),
        Sleeper(1e-5),
        Sleeper(0.01),
    )
    device_lock.add(sleeper)
    with device_lock.alone():
        assert sleeper.is_frozen
    assert not sleeper.is_frozen
    device_lock.add(woken)
    with pytest.raises(CrowdedFault, match="worked while it was stopped"), device_lock.alone():
        assert woken.is_frozen
    assert not woken.is_frozen
    assert not sleeper.is_frozen
    with device_lock.lock.shared():  # which was given back
        pass


def waits_for(lock: HostLock) -> None:
    """Returns when another thread waits to have it alone."""
    while not lock._waiting:
        time.sleep(0.001)


class Slow(Sleeper):
    """Each request for what it has used, and each end of its standing, takes its time."""

    def cpu_seconds(self):
        time.sleep(0.1)
        return super().cpu_seconds()

    def thaw(self):
        time.sleep(0.1)
        super().thaw()


def test_work_after_a_turn_is_no_work_in_it():
    """On a busy host much may happen between the end of a turn and the next line of its thread."""
    device_lock, waiting = DeviceLock(TwoSeats(), HostLock("cpu")), Slow(0.0)
    device_lock.add(waiting)

    def work():
        with device_lock.lock.shared():
            waiting.used += 0.01

    with ThreadPoolExecutor(1) as threads:
        with device_lock.alone():
            working = threads.submit(work)
            time.sleep(0.1)
            assert not working.done()
        working.result(20)


def test_the_end_of_a_turn_wakes_nothing_in_the_next():
    device_lock, waiting = DeviceLock(TwoSeats(), HostLock("cpu")), Slow(0.0)
    device_lock.add(waiting)
    stood = []

    def next_turn():
        with device_lock.alone():
            stood.append(waiting.is_frozen)
            time.sleep(0.2)
            stood.append(waiting.is_frozen)

    with ThreadPoolExecutor(1) as threads:
        with device_lock.alone():
            turn = threads.submit(next_turn)
            waits_for(device_lock.lock)
        turn.result(20)
    assert stood == [True, True]


def test_work_under_a_lent_lock_stands_still_while_another_judge_has_the_device_alone():
    device_lock, waiting = DeviceLock(TwoSeats(), HostLock("cpu")), Sleeper(0.0)
    device_lock.add(waiting)
    others, entered, ends = HostLock("cpu"), threading.Event(), threading.Event()
    stood = []

    def of_another_judge():
        with others.exclusive():
            stood.append(waiting.is_frozen)
            entered.set()
            time.sleep(0.2)
            stood.append(waiting.is_frozen)

    def lent():
        with device_lock.lock.lent():
            entered.set()
            ends.wait(20)

    with ThreadPoolExecutor(2) as threads:
        borrowed = threads.submit(lent)
        assert entered.wait(20)
        entered.clear()
        with device_lock.alone():
            other = threads.submit(of_another_judge)
            time.sleep(0.2)
            assert not entered.is_set()
        assert not waiting.is_frozen
        ends.set()
        borrowed.result(20)
        other.result(20)
    assert stood == [True, True]


def test_the_end_of_a_turn_wakes_nothing_that_is_stopped_by_its_own_judge(launcher):
    with launcher.start(CPP) as runner:
        runner.freeze()
        runner.resume()  # by a thread that has the device again, before the other has thawed it
        assert "T" not in states(runner)
        assert runner.pause()
        runner.thaw()
        time.sleep(0.05)
        assert states(runner) == {"T"}
        runner.freeze()
        runner.thaw()
        assert "T" not in states(runner)


def test_a_thread_that_has_the_device_waits_for_no_end_of_another_turn(launcher):
    """The other's turn waits for lent locks, a judge that waits to be alone for this thread."""
    with launcher.start(CPP) as runner:
        runner.freeze()
        assert isinstance(runner.account(20), str)
        assert "T" not in states(runner)
