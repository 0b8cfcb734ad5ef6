"""How much memory a task's processes and their blocks of calls are given.

Invariants: a new task has room until it is measured; more processes and larger outputs take more;
a block is as long as its intervals need, in memory that every process has. Three sides of 6 GiB
each fit into a GPU of 80 GB, and so does the expected outcome of a candidate beside it.
"""

from typing import Any

import pytest
import torch

from evolve.core.evaluation import Fidelity
from evolve.core.task import Task
from evolve.worker.base.faults import CANDIDATE, EAGER
from evolve.worker.correctness.output_sizes import Alive
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.messages import TensorAt
from evolve.worker.session.memory_model import (
    block_outputs,
    largest_block,
    require_more,
    room_for,
    room_to_check,
    trusted_bytes,
    working_bytes,
)
from evolve.worker.session.plan import PLANS, plan_for
from evolve.worker.session.prepared_task import PreparedTasks
from evolve.worker.timing.planning import planned
from tests.worker.judging import task_source
from tests.worker.serving import RELU_TASK


@pytest.mark.parametrize("processes", [1, 400])
def test_a_new_task_has_room_for_being_measured_until_it_is(processes):
    device = CpuDevice()
    device.pool_bytes = device.process_bytes = 0
    task = PreparedTasks(device).get(RELU_TASK, "verify")
    new = room_to_check(task, device, processes)
    task.layouts = {"default": ()}
    known = room_to_check(task, device, processes)
    assert known == room_for(task.cases, device, processes)
    block, outputs = (
        of(task, device, PLANS[Fidelity.VERIFY]) for of in (largest_block, block_outputs)
    )
    needed = block + outputs + room_for(task.cases, device, 1) - task.cases[0].input_bytes
    assert new == max(known, needed)
    assert (new > known) == (processes == 1)


def test_an_evaluation_takes_more_room_the_more_processes_and_the_larger_its_outputs():
    device = CpuDevice()
    device.pool_bytes = device.block_bytes = 0
    asking = "(x[:, None] * x) if float(x[0]) < 2 else x"  # so that it takes a call to know more
    task = Task(name="outer", source=task_source(asking, "[torch.rand(256)]"))
    (case,) = PreparedTasks(device).get(task).cases
    unseen = room_for([case], device, 2)
    assert case.output_bytes == 256 * case.input_bytes
    seen = room_for([case], device, 2)
    assert seen > 100 * unseen
    assert room_for([case], device, 3) > seen
    device.pool_bytes = 1 << 40
    assert room_for([case], device, 2) > 2 << 40


@pytest.mark.parametrize("usual", [0, 1 << 30])
def test_where_a_reference_ran_out_of_memory_its_processes_get_twice_as_much(usual):
    device = CpuDevice()
    device.pool_bytes = usual
    cases = PreparedTasks(device).get(RELU_TASK).cases
    before = max(usual, trusted_bytes(cases, device))
    assert require_more(cases, device)
    assert working_bytes(cases, device) >= trusted_bytes(cases, device) >= 2 * before


def test_what_is_worked_out_one_at_a_time_is_not_counted_for_each():
    device = CpuDevice()
    cases = PreparedTasks(device).get(RELU_TASK).cases
    of_its_own = room_for(cases, device, 1)
    device.expecting_bytes = 1 << 40
    assert room_for(cases, device, 1) < of_its_own
    assert room_for(cases, device, 1) > room_for(cases, device, 1, judges=False)


def test_blocks_are_short_where_intervals_may_be_wide():
    device = CpuDevice()
    device.half_width, device.reward_bytes = 0.1, 1 << 10
    task = PreparedTasks(device).get(RELU_TASK)
    (case,) = task.timed
    task.calls[case.index], task.reference_s[case.index] = 64, 1.0
    assert largest_block(task, device, plan_for(Fidelity.SEARCH, device)) == case.known_bytes
    assert largest_block(task, device, plan_for(Fidelity.VERIFY, device)) > case.known_bytes
    device.half_width = 0.01
    assert largest_block(task, device, plan_for(Fidelity.SEARCH, device)) > case.known_bytes


def test_a_process_has_memory_for_the_outputs_of_its_blocks_and_of_their_recording():
    device = CpuDevice()
    device.block_bytes, device.has_profiler = 1 << 30, True
    task = PreparedTasks(device).get(RELU_TASK)
    (case,) = task.timed
    one, calls = case.output_bytes, 64
    task.calls[case.index] = calls

    def for_outputs(reference_s):
        task.reference_s[case.index] = reference_s
        return working_bytes(task.timed, device) + block_outputs(
            task, device, plan_for(Fidelity.SEARCH, device)
        )

    assert for_outputs(1.0) > 1.4 * calls * one
    assert for_outputs(50e-6) > calls * (case.input_bytes + 2.4 * one)
    task.calls[case.index] = 1
    assert for_outputs(1.0) == working_bytes(task.timed, device)  # which are enough for one call


GIB = 1 << 10  # all sizes of the next tests are a millionth of those of a GPU
LARGE = Task(
    name="relu2",
    source=task_source("torch.relu(x) * 2 + x", f"[torch.rand({6 * GIB // 16}, 4)]"),
)


def small_h100(total: float = 79.1) -> Any:
    device = CpuDevice()
    device.total_bytes = int(total * GIB)
    device.room, device.warm_bytes = int(0.55 * total * GIB), int(total * GIB) // 8
    device.pool_bytes, device.process_bytes = GIB // 2, GIB // 2
    device.block_bytes = device.total_bytes // 100
    return device


def test_three_sides_of_6_gib_fit_into_80_gb():
    device = small_h100()
    task = PreparedTasks(device).get(LARGE)
    sides = working_bytes(task.cases, device) + 2 * trusted_bytes(task.cases, device)
    inputs = 3 * task.cases[0].input_bytes
    assert inputs == 18 * GIB
    staged, contexts = 6 * GIB, 10 * device.process_bytes  # of preforked processes, and the judge's
    assert sides + inputs + staged + contexts <= device.total_bytes
    assert require_more(task.cases, device)  # where it did not suffice


def test_outputs_wait_on_the_host_if_they_do_not_fit_beside_the_sides():
    def waits(device, *sides):
        task = PreparedTasks(device).get(LARGE)
        (case,) = task.timed
        task.reference_s[case.index], task.calls[case.index] = 1.0, 1
        shape, dtype = (6 * GIB // 16, 4), torch.float32
        own = {case.case.name: (TensorAt(address=0, shape=shape, stride=(4, 1), dtype=dtype),)}
        every = dict.fromkeys(sides)
        return planned(task, every, own, device, PLANS[Fidelity.SEARCH])[0].on_host

    assert waits(small_h100(), CANDIDATE, EAGER)
    assert not waits(small_h100(139.0), CANDIDATE, EAGER)
    assert waits(small_h100(139.0), CANDIDATE, EAGER, "compile")


def test_the_truth_is_worked_out_while_the_native_outcome_is_not_there_yet():
    """The first takes the most memory: its operands, temporaries and outcome, each doubled."""
    (case,) = PreparedTasks(CpuDevice()).get(LARGE).cases
    x = torch.rand(4096, 1024)  # pieces of a comparison are small beside it
    with Alive([x]) as alive:
        case.case.expected(case.case.model(0), [x])
    assert 6 * x.nbytes <= alive.most < 6.5 * x.nbytes
