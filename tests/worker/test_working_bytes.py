"""Memory for what a process computes.

Invariants:
- there is room for two outcomes and as much again, however small the inputs are, and for parts of
  all inputs beside two outcomes;
- weights count;
- no more calls are in a block than have room for their outputs beside what one call needs;
- pieces give the same verdict and the same perturbation law as the whole.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.task import Task
from evolve.worker.correctness import compare, sensitivity
from evolve.worker.correctness import tolerance as blocks
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.reference.seeding import generator
from evolve.worker.session import memory_model
from evolve.worker.session.memory_model import require_more, trusted_bytes
from evolve.worker.session.prepared_task import PreparedTasks
from tests.worker.judging import task_source


def warm(source):
    device = CpuDevice()
    device.room = 1 << 40  # as where memory is limited: elsewhere sizes are of no interest
    return PreparedTasks(device).get(Task(name="probe", source=source))


def working_bytes(cases, device=None):
    return memory_model.working_bytes(cases, device or CpuDevice())


def test_a_large_output_of_small_inputs_counts():
    task = warm(task_source("x[:, None] * x", "[torch.rand(256)]"))
    assert working_bytes(task.cases) >= 4 * 256 * 256 * 4


def test_a_candidate_may_copy_its_inputs_of_the_reference_it_is_known_whether_it_does():
    inputs, size = "[torch.rand(256, 1024)]", 256 * 1024 * 4
    for body, copies in (("x.sum(-1)", 0), ("torch.sort(x.exp(), -1)[0].sum(-1)", 2)):
        cases = warm(task_source(body, inputs)).cases
        assert working_bytes(cases) >= 2 * size
        known = trusted_bytes(cases, CpuDevice())
        assert copies * size <= known <= working_bytes(cases)
        assert copies or known < size


def test_a_large_reference_gets_what_it_is_known_to_use_and_two_tensors_more():
    inputs, size, full = "[torch.rand(256, 1024)]", 256 * 1024 * 4, CpuDevice()
    full.pool_bytes = 0  # so that these are large
    cases = warm(task_source("x / x.abs().mean(1, keepdim=True)", inputs)).cases
    assert 3 * size <= trusted_bytes(cases, full) < 3.1 * size < working_bytes(cases)


@pytest.mark.slow
@given(
    sizes=st.tuples(*3 * [st.integers(1, 1 << 34)]),
    is_known=st.booleans(),
    pool=st.integers(0, 1 << 32),
    room=st.integers(1, 1 << 37),
)
def test_more_memory_is_more_for_all_sides_and_comes_to_an_end(sizes, is_known, pool, room):
    (case,) = cases = warm(task_source("x.exp()", "[torch.rand(4)]")).cases
    case.input_bytes, case._output_bytes, peak = sizes
    case.peak_bytes = peak if is_known else 0
    device = CpuDevice()
    device.pool_bytes, device.room = pool, room
    for _ in range(60):
        before = [working_bytes(cases, device), max(pool, trusted_bytes(cases, device))]
        is_more = require_more(cases, device)
        after = [working_bytes(cases, device), max(pool, trusted_bytes(cases, device))]
        assert after[0] >= before[0]
        assert (after[1] > before[1]) == is_more
        if not is_more:
            return
    raise AssertionError("more memory was promised 60 times")


def test_parts_of_all_inputs_have_room_beside_two_outcomes():
    (case,) = cases = warm(task_source("x[:, :512] + 1", "[torch.rand(256, 1024)]")).cases
    assert case.output_bytes == case.input_bytes // 2
    assert working_bytes(cases) >= 2 * case.input_bytes + 2 * case.output_bytes


def test_a_task_that_is_large_for_its_device_has_what_one_call_needs():
    (case,) = cases = warm(task_source("x + 1", "[torch.rand(256, 1024)]")).cases
    device = CpuDevice()
    device.total_bytes = 8 * case.output_bytes
    needed = case.input_bytes + 2 * case.output_bytes
    assert needed <= working_bytes(cases, device) < working_bytes(cases)
    device.total_bytes = 1 << 40
    assert working_bytes(cases, device) == working_bytes(cases)


def test_weights_count():
    source = task_source(
        "self.layer(x)", "[torch.rand(1, 512)]", setup="self.layer = nn.Linear(512, 512)"
    )
    assert working_bytes(warm(source).cases) >= 2 * 512 * 512 * 4


@pytest.mark.parametrize(("spare", "most"), [(0, 1), (3.9, 4), (10_000, 100)])
def test_outputs_of_a_block_have_room_beside_what_one_call_needs(spare, most):
    (case,) = warm(task_source("x * 2", "[torch.rand(256)]")).cases
    case._device.block_bytes = 100 * case.input_bytes
    size, most_bytes = case.output_bytes, 100 * case.input_bytes
    assert case.most_calls(size, most_bytes, int(spare * size)) == most
    assert case.calls(1e-9, size, int(spare * size)) <= most
    assert case.calls(10.0, size, int(spare * size)) == 1  # the CPU's fewest


def test_comparing_in_pieces_finds_a_difference_in_the_last_one(monkeypatch):
    monkeypatch.setattr(blocks, "_COMPARED_AT_ONCE", 64)
    task = warm(task_source("x * 2", "[torch.rand(100, 7)]"))
    wanted = task.cases[0].check("task", 0).expected
    right = wanted.reference[0].clone()
    assert compare.suite_verdict([right], wanted)
    right[-1, -1] += 1
    assert not compare.suite_verdict([right], wanted)


def test_every_piece_is_perturbed_by_one_step(monkeypatch):
    monkeypatch.setattr(sensitivity, "_NUDGED_AT_ONCE", 64)
    x = torch.rand(100, 7, dtype=torch.float64) + 1
    moved = x.clone()
    sensitivity._nudge(moved, generator(0, "sensitivity"), sensitivity.SENSITIVITY_STEP)
    steps = (moved / x - 1) / sensitivity.SENSITIVITY_STEP
    assert torch.allclose(steps.abs(), torch.ones_like(steps), rtol=1e-6)
    assert 250 < int((steps > 0).sum()) < 450


def test_of_few_values_equal_ones_move_together_too_whatever_their_sign():
    draws, step = generator(0, "sensitivity"), 2.0**-24
    values = torch.tensor([3.0, 1.0, 3.0, -3.0, 1.0, -1.0, 3.0, 1.0], dtype=torch.float64)
    seen = set()
    for _ in range(40):
        moved = values.clone()
        sensitivity._nudge(moved, draws, step)
        steps = ((moved / values - 1) / step).round()  # each by itself, and with its equals
        sides = [set((steps[values.abs() == value] - 1).tolist()) for value in (3.0, 1.0)]
        together = tuple(1 if side <= {1.0, -1.0} else -1 for side in sides)
        assert all(side <= ({1.0, -1.0} if up > 0 else {-1.0, -3.0})
                   for side, up in zip(sides, together, strict=True))  # fmt: skip
        seen.add(together)
    assert len(seen) == 4


def test_a_scalar_and_an_empty_tensor_are_perturbed_too():
    scalar, empty = torch.tensor(1.0, dtype=torch.float64), torch.empty(0, 3, dtype=torch.float64)
    sensitivity._nudge(scalar, generator(0, "sensitivity"), 2.0**-24)
    sensitivity._nudge(empty, generator(0, "sensitivity"), 2.0**-24)
    assert float(scalar) != 1.0
