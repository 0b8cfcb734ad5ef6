"""What a compiled reference says of eager's convolutions: what they do in that task.

On a CPU convolutions never round, so the device here only claims that they may, and the reference
that rounds does so by itself.
"""

import ast
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional

from evolve.core.compiled import EXACT_CONVOLUTIONS, Compiled, convolution_key
from evolve.core.task import Task
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.build.inductor import compile_model
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.evidence import eager_rounding as rounding
from evolve.worker.judge.judge import Judge
from operators.local.templates.calls import SETTINGS
from operators.local.templates.tensors import keywords
from tests.worker.judging import task_source

SETUP = "self.layer = nn.Conv2d(8, 16, 3)"
INPUTS = "[torch.rand(2, 8, 12, 12)]"
ROUNDED = "self.layer(x.half().float() if x.dtype == torch.float32 else x)"


class MayRound(CpuDevice):
    def describe(self):
        return {**super().describe(), "eager_convolutions": "tf32"}


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judge")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))  # a lock of its own
        folder.chmod(0o755)
        judge = Judge(MayRound(), folder / "cache")
        yield judge
        judge.close()


def facts(judge: Judge, forward: str, setup: str = SETUP, inputs: str = INPUTS):
    task = Task(name="t", source=task_source(forward, inputs, setup=setup))
    answer = judge.compiled(task, ["default"])["default"]
    return Compiled.from_json(answer["compiled"]).device


def said(judge: Judge, forward: str, **task: str) -> str:
    return facts(judge, forward, **task)["eager_convolutions"]


@pytest.mark.slow  # `test_where_some_round_those_that_do_not_are_told` has one of each
def test_convolutions_that_might_round_and_do_not_are_exact(judge):
    assert said(judge, "torch.relu(self.layer(x))") == "ieee"


@pytest.mark.slow
def test_convolutions_that_round_are_told_by_the_error_of_the_outcome(judge):
    assert said(judge, f"torch.relu({ROUNDED})") == "tf32"


@pytest.mark.slow
def test_so_are_those_whose_outcomes_are_small_or_mostly_zero(judge):
    assert said(judge, f"{ROUNDED}.softmax(1)") == "tf32"
    assert said(judge, f"torch.relu({ROUNDED} - 1.5)") == "tf32"


@pytest.mark.slow
def test_other_tasks_have_what_holds_for_the_device(judge):
    linear = {"setup": "self.layer = nn.Linear(8, 16)", "inputs": "[torch.rand(4, 8)]"}
    assert said(judge, "self.layer(x)", **linear) == "tf32"


TWO = """
self.layer = nn.Conv2d(8, 16, 3, stride=2)
self.back = nn.ConvTranspose2d(16, 4, 5, groups=2)
"""


@pytest.mark.slow
def test_where_some_round_those_that_do_not_are_told(judge, monkeypatch):
    exact = (
        "convolution 2x8x12x12 16x8x3x3 2x2 0x0 1x1 0x0 1",
        "transposed 2x16x5x5 16x2x5x5 1x1 0x0 1x1 0x0 2",
    )
    two = {"setup": TWO.strip().replace("\n", "\n        ")}
    found = facts(judge, "self.back(self.layer(x.half().float()))", **two)
    assert found["eager_convolutions"] == "tf32"
    assert found[EXACT_CONVOLUTIONS].split(";") == list(exact)

    class Elsewhere(DispatchMode):
        def run(self, operation, arguments, options):
            x, *others = arguments
            return operation(x + 1e-3 if x.shape[1:2] == (8,) else x, *others, **options)

    monkeypatch.setattr(rounding, "ByProducts", Elsewhere)
    found = facts(judge, "self.back(self.layer(x.half().float())) + 1", **two)
    assert found[EXACT_CONVOLUTIONS] == exact[1]


def test_an_image_of_zeros_says_nothing_of_a_convolution():
    layer, watch = nn.Conv2d(2, 4, 3, bias=False), rounding.Watch()
    with torch.no_grad(), watch:
        layer(torch.zeros(1, 2, 9, 9))
        assert not watch.found
        layer(torch.rand(1, 2, 9, 9))
    assert [*watch.found.values()] == [True]


class OneNumber(nn.Module):
    """For all dimensions in space."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 6, 3, 3))

    def forward(self, x):
        return functional.conv2d(x, self.weight, None, (2,), (1,))


LAYERS = {
    "one dimension": (nn.Conv1d(6, 4, 3, stride=2, padding=1), (2, 6, 20)),
    "without a batch": (nn.Conv2d(6, 4, 3), (6, 20, 20)),
    "dilated, in groups": (nn.Conv2d(6, 4, 3, dilation=2, groups=2), (2, 6, 20, 20)),
    "as large": (nn.Conv2d(6, 4, 3, padding="same"), (2, 6, 20, 20)),
    "transposed": (nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1), (2, 6, 9, 9)),
    "one number for all": (OneNumber(), (2, 6, 9, 9)),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_found_has_the_key_of_the_call_that_the_compiler_writes(name):
    layer, shape = LAYERS[name]
    model, x = nn.Sequential(layer, nn.ReLU()).eval(), torch.rand(shape)
    watch = rounding.Watch()
    with torch.no_grad(), watch:
        model(x)
    with mock.patch("torch._inductor.config.cpp.weight_prepack", False):
        code = compile_model(model, [x], {}).code
    (call,) = (
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "extern_kernels.convolution"
    )
    given = keywords(call)
    settings = [given[one] for one in SETTINGS]
    batched = shape if len(shape) == layer.weight.dim() else (1, *shape)
    assert [*watch.found] == [convolution_key(batched, layer.weight.shape, settings)]
