"""What a reference takes, found out without making the call.

Invariants:
- outputs are those of a real call, to the byte, whatever tree they come in, and bytes are numbers;
- what is alive at once counts, views of it do not, and what has been let go of no longer;
- the task that is judged stays as it is, whatever its file keeps between calls;
- a reference that asks for values or addresses has no extent, and is judged all the same.
"""

import pytest
import torch

from evolve.core.task import Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.output_sizes import extent_of
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.tensor_buffer import Outline, Packed
from evolve.worker.session.prepared_task import PreparedTasks
from tests.worker.judging import task_source

KB = 1 << 10
ROW = "[torch.rand(256)]"
ROWS = "[torch.rand(64, 256)]"
KEEPS_TABLE = """
import functools

@functools.lru_cache
def table(size):
    return torch.arange(size, dtype=torch.float32)
"""
KEEPS_LAST = """
class Keep(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(256))

    def forward(self, x):
        self.last = x * 0.5 + self.last  # another tensor in its place
        return self.last.exp()
"""


def extent(outcome: str, inputs: str, precision: str = "task", place: str = "cpu", **more: str):
    task = Task(name="probe", source=task_source(outcome, inputs, **more), precision=precision)
    (own,) = load_task(task).cases
    packed = Packed([own.inputs(0)])
    (case,) = load_task(task, torch.device(place)).cases
    return extent_of(case, Outline(packed.trees[0], packed.size), own.effects)


def warm_case(outcome: str, inputs: str, **more: str):
    task = Task(name="probe", source=task_source(outcome, inputs, **more))
    device = CpuDevice()
    device.room = 1 << 40  # as where memory is limited: elsewhere sizes are of no interest
    (case,) = PreparedTasks(device).get(task).cases
    return case


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("outcome", "inputs", "setup"),
    [
        ("x + 1", ROWS, "pass"),
        ("(x.sum(1), {'a': x[:, :3].contiguous(), 'b': x.argmax(1)})", ROWS, "pass"),
        ("self.layer(x)", ROWS, "self.layer = nn.Linear(256, 32)"),
        ("F.max_pool2d(self.layer(x), 4)", "[torch.rand(2, 3, 16, 16)]",
         "self.layer = nn.Conv2d(3, 8, 3, padding=1)"),
        ("self.layer(x)", "[torch.rand(2, 5, 16)]",
         "self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)"),
        ("self.layer(x)[0]", "[torch.rand(2, 5, 16)]",
         "self.layer = nn.GRU(16, 8, batch_first=True)"),
        ("self.layer(x)", ROWS,
         "self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(256, 8))"),
        ("x.new_zeros(0)", ROWS, "pass"),
        ("x * TABLE + torch.outer(TABLE, TABLE).sum(0)", ROWS, "pass"),
    ],
)  # fmt: skip
def test_outputs_are_those_of_a_call(outcome, inputs, setup):
    more = {"setup": setup, "extra": "TABLE = torch.arange(256.0)"}
    found, case = extent(outcome, inputs, **more), warm_case(outcome, inputs, **more)
    outputs = case.check("task", 0).expected.reference
    assert found.outputs == sum(output.nbytes for output in outputs)
    assert type(found.outputs) is type(found.peak) is int
    assert found.peak >= found.outputs
    assert (case.output_bytes, case.peak_bytes) == (found.outputs, found.peak)


@pytest.mark.parametrize(
    ("outcome", "inputs", "setup"),
    [
        ("self.layer(x)", "[torch.rand(8, 4, 16)]", "self.layer = nn.BatchNorm1d(4)"),
        ("self.total.add_(x).exp()", ROW, "self.register_buffer('total', torch.zeros(256))"),
        ("x.add_(1).exp()", ROW, "pass"),
        ("self.keep(x)", ROW, "self.keep = Keep()"),
        ("torch.autograd.grad((self.layer(x) ** 2).sum(), self.layer.weight)[0]", ROWS,
         "self.layer = nn.Linear(256, 32)"),
    ],
)  # fmt: skip
def test_a_reference_that_changes_tensors_or_needs_gradients_has_an_extent(outcome, inputs, setup):
    more = {"setup": setup, "extra": KEEPS_LAST}
    found, case = extent(outcome, inputs, **more), warm_case(outcome, inputs, **more)
    outputs = case.check("task", 0).expected.reference
    assert found.outputs == sum(output.nbytes for output in outputs)
    assert found.peak > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("precision", ["task", "fp16"])
@pytest.mark.parametrize(
    "setup", ["self.layer = nn.Linear(256, 32)", "self.layer = nn.GRU(256, 32)"]
)
def test_a_model_that_is_made_on_a_device_is_measured_as_one_here_is(precision, setup):
    """`meta` stands for a GPU: it is another place than the CPU, so that models are moved there."""
    outcome = "self.layer(x)[0]"
    there = extent(outcome, ROWS, precision, place="meta", setup=setup)
    assert there.outputs == extent(outcome, ROWS, precision, setup=setup).outputs
    assert there.peak >= there.outputs


def test_a_task_in_half_precision_takes_half():
    layer = {"setup": "self.layer = nn.Linear(256, 32)"}
    whole = extent("self.layer(x)", ROWS, **layer)
    half = extent("self.layer(x)", ROWS, "fp16", **layer)
    assert (2 * half.outputs, 2 * half.peak) == (whole.outputs, whole.peak)


def test_what_is_alive_at_once_counts():
    spread = extent("(x[:, None] * x).exp().sum(1)", ROW)  # 1 KiB, and twice 256 KiB
    assert 512 * KB <= spread.peak <= 516 * KB
    assert spread.outputs == KB


def test_what_has_been_let_go_of_does_not_count():
    assert extent("sum((x[:, None] * x).sum(1) for _ in range(20))", ROW).peak < 300 * KB


def test_the_terms_of_a_loss_count_though_one_operation_adds_them_up():
    assert extent("F.smooth_l1_loss(x, x.flip(0))", ROWS).peak >= 2 * 64 * KB


def test_a_call_of_very_many_operations_is_made_instead(monkeypatch):
    steps = "sum(x + step for step in range(50))"
    assert extent(steps, ROW) is not None
    monkeypatch.setattr("evolve.worker.correctness.output_sizes._MAX_OPERATIONS", 90)
    assert extent(steps, ROW) is None


def test_views_do_not_count():
    assert extent("(x[:, None] * x).view(-1)[3:].view(-1)", ROW).peak == 256 * KB


def test_what_a_file_keeps_between_calls_is_not_left_without_values():
    case = warm_case("x * table(256)", ROW, extra=KEEPS_TABLE)
    assert case.is_measured
    expected = case.check("task", 0).expected
    assert type(expected.reference[0]) is torch.Tensor
    assert expected.reference[0].isfinite().all()


@pytest.mark.parametrize(
    "outcome",
    [
        "x * 2 if float(x.sum()) > -1 else x",
        "torch.from_numpy(x.numpy() * 2)",
        "x * 2 if x.data_ptr() else x",
        "x * 2 if x.sum() > 0 or 1 / 0 else x",
    ],
)
def test_a_reference_that_asks_for_values_is_measured_by_a_call(outcome):
    case = warm_case(outcome, "[torch.rand(64)]")
    assert not case.is_measured
    assert case.output_bytes == 256
    assert case.is_measured


def test_a_task_is_measured_before_anything_is_computed():
    case = warm_case("(x[:, None] * x).amax(1)", ROW)
    assert case.is_measured
    assert case.output_bytes == KB
    assert case.peak_bytes >= 256 * KB
