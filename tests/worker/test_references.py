"""Processes of references that serve more than one turn.

Invariants:
- who is in use is nobody else's, and who has ended is given to nobody;
- each belongs to one task as it was loaded once, and to one size of its blocks;
- one serves comparison after comparison, two rounds of each at most, and those that have not
  served it come first; a baseline's serve four rounds of one;
- no more are kept than were asked for, nor in more than half of what may stay warm.
"""

from weakref import WeakKeyDictionary

import pytest

from evolve.languages.torch import TORCH
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.runner_process import Needs, close_all
from evolve.worker.session.prepared_task import PreparedTasks
from evolve.worker.session.reference_processes import References
from evolve.worker.timing.baseline_processes import BaselineProcesses
from tests.worker.serving import RELU_TASK

MAX_BYTES = 1 << 30
SMALL = Needs()


@pytest.fixture
def references(launcher):
    started = []

    def start(task, needs):
        started.append(launcher.start(TORCH))
        return started[-1]

    device = CpuDevice()
    device.references, device.warm_bytes, device.pool_bytes = 2, 2 * MAX_BYTES, 0
    kept = References(start, device)
    yield kept, started
    close_all(started)


@pytest.fixture
def task():
    return PreparedTasks(CpuDevice()).get(RELU_TASK)


def test_one_that_was_given_back_is_taken_again_and_one_in_use_is_not(references, task):
    kept, started = references
    first, second = (
        kept.take(task, SMALL, WeakKeyDictionary()),
        kept.take(task, SMALL, WeakKeyDictionary()),
    )
    assert started == [first, second]
    assert kept.give_back(task, SMALL, first) == []
    assert kept.take(task, SMALL, WeakKeyDictionary()) is first
    assert len(started) == 2


def test_of_a_later_load_for_larger_blocks_or_more_queues_it_is_another(references, task):
    kept, started = references
    again = PreparedTasks(CpuDevice()).get(RELU_TASK)
    kept.give_back(task, SMALL, kept.take(task, SMALL, WeakKeyDictionary()))
    kept.give_back(task, Needs(8), kept.take(task, Needs(8), WeakKeyDictionary()))
    kept.take(again, SMALL, WeakKeyDictionary())
    kept.take(task, Needs(all_queues=True), WeakKeyDictionary())
    assert len(started) == 4


def test_one_that_has_ended_is_closed_and_not_kept(references, task):
    kept, _ = references
    process = kept.take(task, SMALL, WeakKeyDictionary())
    process.close()
    assert kept.give_back(task, SMALL, process) == [process]
    assert kept.take(task, SMALL, WeakKeyDictionary()) is not process


def test_one_serves_comparison_after_comparison(references, task):
    kept, started = references
    for _ in range(50):
        assert kept.give_back(task, SMALL, kept.take(task, SMALL, WeakKeyDictionary())) == []
    assert len(started) == 1


def test_those_that_were_used_last_are_kept_and_all_can_be_let_go(references, task):
    kept, _ = references
    several = [kept.take(task, Needs(block), WeakKeyDictionary()) for block in range(3)]
    assert [kept.give_back(task, Needs(block), one) for block, one in enumerate(several)] == [
        [], [], several[:1]
    ]  # fmt: skip
    assert kept.leave() == several[1:]
    assert kept.leave() == []


def test_one_that_takes_more_memory_than_all_may_is_not_kept_and_costs_no_other(references, task):
    kept, _ = references
    small, large = (
        kept.take(task, SMALL, WeakKeyDictionary()),
        kept.take(task, Needs(2 * MAX_BYTES), WeakKeyDictionary()),
    )
    assert kept.give_back(task, SMALL, small) == []
    assert kept.give_back(task, Needs(2 * MAX_BYTES), large) == [large]
    assert kept.leave() == [small]


def test_those_that_are_kept_do_not_take_more_memory_together(references, task):
    kept, _ = references
    half = Needs(MAX_BYTES // 2 + 1)
    first, second = (
        kept.take(task, half, WeakKeyDictionary()),
        kept.take(task, half, WeakKeyDictionary()),
    )
    assert kept.give_back(task, half, first) == []
    assert kept.give_back(task, half, second) == [first]
    assert kept.leave() == [second]


def test_none_serves_one_comparison_three_times(references, task):
    kept, started = references
    served = WeakKeyDictionary()
    for _ in range(4):
        kept.give_back(task, SMALL, kept.take(task, SMALL, served))
    assert len(started) == 2
    assert kept.take(task, SMALL, WeakKeyDictionary()) in started


def test_one_that_has_not_served_a_comparison_comes_before_one_that_has(references, task):
    kept, started = references
    for one in [kept.take(task, SMALL, WeakKeyDictionary()) for _ in range(2)]:
        kept.give_back(task, SMALL, one)
    served = WeakKeyDictionary()
    for _ in range(2):
        kept.give_back(task, SMALL, kept.take(task, SMALL, served))
    assert set(served) == set(started)


def test_a_baselines_process_serves_four_rounds_and_all_are_closed_at_the_end(launcher):
    baselines, started = BaselineProcesses(), []

    def start():
        started.append(launcher.start(TORCH))
        return started[-1]

    closed = []
    for _ in range(6):  # batches of two rounds
        round_ = [baselines.take("compile", start) for _ in range(2)]
        assert len(set(round_)) == 2
        closed += [gone for one in round_ for gone in baselines.give_back("compile", one)]
    assert len(started) == 4
    assert set(closed) == set(started[:2])
    assert all(one.alive for one in started[2:])
    assert baselines.take("eager_tf32", start) not in started[:4]  # each is of one side
    baselines.close()
    assert not any(one.alive for one in started[2:4])
    close_all(started)


def test_a_baselines_process_that_has_ended_serves_no_more(launcher):
    baselines = BaselineProcesses()
    process = baselines.take("compile", lambda: launcher.start(TORCH))
    process.close()
    assert baselines.give_back("compile", process) == [process]
    with baselines.take("compile", lambda: launcher.start(TORCH)) as another:
        assert another is not process
