"""Cores of judges that work side by side on one host without knowing of each other.

Invariants: no two keep time on one core while there are others; no runner works where anybody
keeps time; whoever is timed has a core that nobody else uses, where cores are many; where they are
few all are used; a judge that has ended leaves its cores to the next.
"""

import time
from multiprocessing import get_context

import pytest

from evolve.worker.devices.cpu_affinity import ClockCores
from evolve.worker.processes import host_locks as locks

MANY = range(1000, 1008)  # of numbers that no host has, so each has no sibling


@pytest.fixture(autouse=True)
def locks_of_a_host_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_OF_HOST", tmp_path)


def keep_time(pipe):
    cores = ClockCores(MANY)
    pipe.send(cores.of_clock)
    pipe.recv()


def another():
    """Another judge: its core, and what ends it."""
    ours, theirs = get_context("fork").Pipe()
    judge = get_context("fork").Process(target=keep_time, args=(theirs,))
    judge.start()
    (core,) = ours.recv()

    def end():
        ours.send("end")
        judge.join()

    return core, end


def test_each_judge_keeps_time_on_a_core_of_its_own_and_lets_no_runner_there():
    others = [another() for _ in range(3)]
    own = ClockCores(MANY)
    clocks = {core for core, _ in others} | own.of_clock
    assert len(clocks) == 4
    assert own.of_runners()
    assert not own.of_runners() & clocks
    for _, end in others:
        end()
    until = time.monotonic() + 5  # what is free is looked at now and then
    while own.of_runners() != set(MANY) - own.of_clock:
        assert time.monotonic() < until, own.of_runners()
        time.sleep(0.05)


def test_whoever_is_timed_has_a_core_that_nobody_else_uses():
    other, end = another()
    own = ClockCores(MANY)
    (core,) = own.of_timed
    assert core not in {other} | own.of_clock | own.of_runners()
    assert own.has_own  # so both may wait without sleeping
    end()


def test_the_core_of_a_judge_that_has_ended_is_free_again():
    first, end = another()
    end()
    again, end = another()
    end()
    assert first == again


@pytest.mark.parametrize("count", [1, 2])
def test_of_few_cores_all_are_used_for_everything(count):
    cores = ClockCores(MANY[:count])
    assert cores.of_clock == cores.of_runners() == set(MANY[:count])
    assert not cores.has_own


def test_where_a_core_is_left_for_the_clock_only_whoever_is_timed_shares_the_others():
    cores = ClockCores(MANY[:4])
    assert cores.of_timed == cores.of_runners() == set(MANY[:4]) - cores.of_clock
    assert not cores.has_own


def test_more_judges_than_cores_share():
    others = [another() for _ in range(9)]
    cores = ClockCores(MANY)
    assert cores.of_clock
    assert cores.of_runners()
    for _, end in others:
        end()
