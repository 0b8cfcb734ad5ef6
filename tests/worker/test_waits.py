"""What is asked of a GPU under the lock that all evaluations of a judge wait for.

Other processes use the GPU as well, so each answer takes milliseconds, and each launch tens of
microseconds of the thread that holds the lock.

Invariants: inputs of the task's own are drawn without any answer; a family asks twice for each
tensor that it may change, an expectation once for each output, however large; a block of many small
calls is packed in a few launches; what is not needed until an outcome is wrong is not asked for.
"""

import pytest
import torch

from evolve.worker.correctness import tolerance
from evolve.worker.devices.cpu.device import CpuDevice
from tests.worker.asking import asked
from tests.worker.judging import loaded_case, task_source

OUTCOMES = {"x * 2": 1, "(torch.softmax(x, 1), x @ x.mT)": 2}  # with the number of outputs


def case_of(outcome="x * 2", inputs="[torch.randn(40, 64)]", **more):
    return loaded_case(task_source(outcome, inputs, **more))


def test_inputs_of_the_tasks_own_are_drawn_without_an_answer():
    case = case_of("x + y", "[torch.randn(40, 64), torch.randn(64)]", arguments="x, y")
    case.inputs(1)
    with asked() as found:
        case.inputs(2)
    assert found.answers == 0
    assert set(found.names) == {"randn"}


def test_a_family_asks_twice_for_each_tensor_that_it_may_change():
    case = case_of("x + y", "[torch.randn(40, 64), torch.randn(64)]", arguments="x, y")
    for family in set(case.families()) - {"task"}:
        with asked() as found:
            case.inputs(2, family)
        assert found.answers <= 4, family


def test_only_a_matrix_that_looks_symmetric_is_compared_with_its_transpose():
    for draw, compared in (("x", 0), ("x + x.T", 1)):
        case = case_of(inputs=f"[(lambda x: {draw})(torch.randn(64, 64))]")
        case.inputs(1)
        with asked() as found:
            case.inputs(1, "scaled_up")
        assert found.names["equal"] == compared


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("slab", [1 << 20, 256])
def test_an_expectation_asks_once_for_each_output_however_large(outcome, slab, monkeypatch):
    monkeypatch.setattr(tolerance, "_SLAB", slab)
    case = case_of(outcome)
    model, inputs = case.model(1), case.inputs(1)
    with asked() as found:
        expected = case.expected(model, inputs)
    assert found.answers == OUTCOMES[outcome]
    with asked() as found:  # by how much a reference is off in most blocks, for coarse ones
        assert all(budget.typical >= 0 for budget in expected.budgets)
    assert found.answers == OUTCOMES[outcome]


def test_of_outcomes_that_are_not_finite_no_slab_has_an_answer_of_its_own(monkeypatch):
    monkeypatch.setattr(tolerance, "_SLAB", 256)
    case = case_of("torch.where(x > 0, x, torch.inf)")
    model, inputs = case.model(1), case.inputs(1)
    with asked() as found:
        case.expected(model, inputs)
    assert found.answers <= 4


@pytest.mark.parametrize("calls", [4, 64])
def test_a_block_of_many_calls_is_packed_in_a_few_operations(calls):
    sets = [
        [torch.randn(8, 8), torch.randn(5), torch.ones(3, dtype=torch.bool)] for _ in range(calls)
    ]
    with asked() as found:
        CpuDevice().make_buffer(sets)
    assert found.answers == 0
    copies = {name: found.names[name] for name in ("_foreach_copy_", "copy_", "fill_", "new_full")}
    assert found.names["_foreach_copy_"] <= 3  # words, bytes, guards
    assert sum(copies.values()) - found.names["_foreach_copy_"] <= 2


def test_on_a_gpu_what_a_file_drew_is_looked_at_outside_of_torchs_mode_for_devices(monkeypatch):
    """In that mode each look at a tensor, at its layout too, is a call of a function of Python."""
    from torch.utils._device import DeviceContext

    seen = []
    plain = DeviceContext.__torch_function__

    def noted(self, function, types, args=(), kwargs=None):
        seen.append(function)
        return plain(self, function, types, args, kwargs)

    monkeypatch.setattr(DeviceContext, "__torch_function__", noted)
    case = case_of()
    object.__setattr__(case, "place", torch.device("meta"))
    (x,) = case.own_inputs(1)
    assert x.device.type == "meta"
    assert seen == [torch.randn]
    seen.clear()
    case.argument_sets(1, 5)
    assert seen == 5 * [torch.randn]
