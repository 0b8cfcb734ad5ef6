"""What a reference takes, found out without making the call.

Invariants:
- outputs are those of a real call, to the byte, whatever tree they come in;
- what is alive at once counts, views of it do not, and what has been let go of no longer;
- neither weights nor buffers of the model change, and nothing random is drawn;
- a reference that asks for values has no extent, and is judged all the same.
"""

import pytest
import torch
from torch import nn

from evolve.core.evaluation import Fidelity
from evolve.core.task import Task
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.extent import extent_of
from evolve.worker.slab import Outline, Packed
from evolve.worker.trees import flatten
from evolve.worker.warm import WarmTasks
from tests.worker.judging import task_source

CPU = torch.device("cpu")
KB = 1 << 10


class Forward(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(256))
        self.register_buffer("calls", torch.zeros(1))
        self._call = forward

    def forward(self, *inputs):
        return self._call(self, *inputs)


def extent(forward, *inputs, model=None):
    packed = Packed([list(inputs)])
    return extent_of(model or Forward(forward), Outline(packed.trees[0], packed.size), CPU)


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: x + m.bias,
        lambda m, x: (x.sum(1), {"a": x[:, :3].contiguous(), "b": x.argmax(1)}),
        lambda m, x: torch.nn.functional.max_pool1d(x.half(), 4),
        lambda m, x: x.new_zeros(0),
    ],
)
def test_outputs_are_those_of_a_call(forward):
    x = torch.rand(64, 256)
    outputs = flatten(Forward(forward)(x))[0]
    assert extent(forward, x).outputs == sum(output.nbytes for output in outputs)


def test_what_is_alive_at_once_counts():
    x = torch.rand(256)  # 1 KiB; each of these 256 KiB
    spread = extent(lambda m, x: (x[:, None] * x).exp().sum(1), x)
    assert 512 * KB <= spread.peak <= 516 * KB
    assert spread.outputs == KB


def test_what_has_been_let_go_of_does_not_count():
    def one_after_the_other(_model, x):
        total = torch.zeros(256)
        for _ in range(20):
            total = total + (x[:, None] * x).sum(1)
        return total

    assert extent(one_after_the_other, torch.rand(256)).peak < 300 * KB


def test_views_do_not_count():
    peak = extent(lambda m, x: (x[:, None] * x).view(-1)[3:].view(-1), torch.rand(256)).peak
    assert peak == 256 * KB


def test_the_model_stays_as_it_is_and_nothing_is_drawn():
    def forward(model, x):
        model.calls += 1
        model.last = x
        return x * torch.rand(256) + model.bias

    model = Forward(forward)
    before = torch.random.get_rng_state()
    assert extent(forward, torch.rand(2, 256), model=model) is not None
    assert type(model.bias) is nn.Parameter
    assert type(model.calls) is torch.Tensor
    assert float(model.calls) == 0
    assert not hasattr(model, "last")
    torch.rand(2, 256)
    torch.random.set_rng_state(before)


def test_a_reference_that_asks_for_values_has_none():
    assert extent(lambda m, x: x * 2 if float(x.sum()) > 0 else x, torch.rand(8)) is None


def test_a_task_whose_reference_asks_for_values_is_measured_by_a_call():
    source = task_source("x[: int(x.argmax()) + 1] if x.sum() > 1e9 else x * 2", "[torch.rand(64)]")
    (case,) = WarmTasks(CpuDevice()).get(Task(name="probe", source=source), Fidelity.SEARCH).cases
    assert not case.is_measured
    assert case.output_bytes == 256
    assert case.is_measured


def test_a_task_is_measured_before_anything_is_computed():
    source = task_source("(x[:, None] * x).amax(1)", "[torch.rand(256)]")
    (case,) = WarmTasks(CpuDevice()).get(Task(name="probe", source=source), Fidelity.SEARCH).cases
    assert case.is_measured
    assert case.output_bytes == KB
    assert case.peak_bytes >= 256 * KB
