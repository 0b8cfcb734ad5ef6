"""What PyTorch's compiler makes of a reference, as the worker asks it.

Invariants: what would take minutes, or give a program of thousands of calls, is refused in words
before it is begun; every setting is one that this version of Inductor knows; it is told all of the
inputs but their values, and writes the same code as for real ones; few processes write all
variants, and one that ends its process costs no other; references that pool are compiled in a
process that has compiled nothing before, where torch misses a module of its own.
"""

import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from evolve.core.compiled import VARIANTS, WHOLE, Compiled
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.base.interpreter import WITH_COMPILER, start
from evolve.worker.build.inductor import SETTINGS, compile_model, settings
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.tensor_buffer import Outline, Packed, unpack
from evolve.worker.judge.judge import Judge

FRAGILE = Task(
    name="fragile",
    source="""
import os
import torch
from torch import nn

traced = []

class Model(nn.Module):
    def forward(self, x):
        traced.append(x) if type(x).__name__ == "FakeTensor" else None
        if len(traced) == 2:
            os._exit(3)
        return torch.nn.functional.max_pool3d(torch.relu(x), 2) + 1

def get_inputs():
    return [torch.randn(2, 4, 8, 8, 8)]

def get_init_inputs():
    return []
""",
)


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0] * 2


def compiled(layer, steps):
    return compile_model(Recurrent(layer).eval(), [torch.randn(steps, 2, 8)], settings("default"))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("layer", "steps", "all_steps"),
    [
        (nn.GRU(8, 8), 65, 65),
        (nn.LSTM(8, 8, num_layers=3, bidirectional=True), 20, 120),
        (nn.RNN(8, 8, num_layers=2), 33, 66),
    ],
    ids=["gru", "lstm", "rnn"],
)
def test_a_long_recurrence_is_refused_with_the_number_of_its_steps(layer, steps, all_steps):
    with pytest.raises(UsageError, match=f"recurrent layers of {all_steps} steps"):
        compiled(layer, steps)


@pytest.mark.slow
def test_a_recurrence_whose_batch_comes_first_is_measured_along_its_steps():
    layer = nn.GRU(8, 8, batch_first=True)
    case = compile_model(
        Recurrent(layer).eval(), [torch.randn(100, 2, 8)], settings("default")
    )  # 100 sequences of two steps
    assert "def call(" in case.code


def test_there_are_settings_for_every_variant_and_no_others():
    assert set(SETTINGS) == set(VARIANTS)
    with pytest.raises(UsageError, match="choose of default"):
        settings("fastest")


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.table = torch.full((4,), 2.0)

    def forward(self, x, pair):
        return torch.relu(self.norm(x)) * pair["scale"][pair["at"]] + self.table.sum()


def kernels(code):
    """The code without what only serves to try it out."""
    return code.partition("def get_args")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "is_left"),
    [
        (nn.AvgPool2d(11), True),
        (nn.AvgPool2d((3, 9), padding=1, count_include_pad=False), True),
        (nn.AvgPool3d(3), True),
        (nn.AvgPool2d(5), False),
        (nn.AvgPool2d(17), False),
    ],
    ids=str,
)
def test_averages_over_large_windows_are_left_to_templates(layer, is_left):
    images = torch.randn(2, 3, *[22] * (3 if isinstance(layer, nn.AvgPool3d) else 2))
    for variant in (WHOLE, "default"):
        code = compile_model(layer, [images], settings(variant)).code
        assert ("torch.ops.aten.avg_pool" in code) == (is_left and variant == WHOLE)


@pytest.mark.slow
def test_without_values_the_same_code_is_written_as_for_real_inputs():
    pair = {"scale": torch.rand(9, 1), "at": torch.arange(64) % 9}
    inputs = [torch.randn(64, 33)[:, 1:], pair]
    packed, model = Packed([inputs]), Several().eval()
    memory = torch.empty(packed.size, dtype=torch.uint8)
    packed.write(memory)
    real = compile_model(model, unpack(packed.trees[0], memory), {})
    _, ghosts = Outline(packed.trees[0], packed.size).without_values(torch.device("cpu"))
    told = compile_model(model, ghosts, {})
    assert kernels(told.code) == kernels(real.code)
    assert told.arguments == real.arguments
    assert (told.mutated, told.outcome) == (real.mutated, real.outcome)


def test_inputs_without_values_may_be_larger_than_any_memory():
    size = 1 << 50
    outline = Outline(Packed([[torch.ones(3)]]).trees[0], size)
    _, (tensor,) = outline.without_values(torch.device("cpu"))
    assert tensor.untyped_storage().nbytes() == size


@pytest.mark.slow
def test_a_variant_that_ends_the_process_costs_no_other(worker):
    wanted = ["default", "looped", "unsplit"]
    answers = worker.ask("compiled", task=FRAGILE.to_json(), variants=wanted)
    assert list(answers) == wanted
    assert "reason" in answers["looped"]
    for name in ("default", "unsplit"):
        made = Compiled.from_json(answers[name]["compiled"])
        assert made.device["cores"] == str(len(os.sched_getaffinity(0)))
        assert (made.variant, len(made.cases)) == (name, 1)
        assert "def call(" in made.cases[0].code


@pytest.mark.slow  # a candidate is: `test_what_compiles_comes_from_one_that_has_the_compiler...`
def test_references_are_compiled_where_the_compiler_is_imported_already(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # a lock of its own
    tmp_path.chmod(0o755)
    ahead = start(WITH_COMPILER)
    judge = Judge(CpuDevice(), tmp_path / "cache", ahead=[ahead])
    try:
        assert "compiled" in judge.compiled(FRAGILE, ["default"])["default"]
        assert ahead.process.pid in {zygote.pid for zygote in judge.launcher.zygotes()}
    finally:
        judge.close()


CHANGING = replace(
    FRAGILE,
    name="changing",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(4)

    def forward(self, x, cache):
        cache[0].add_(x.mean())
        return torch.relu(self.bn(x))

def get_inputs():
    return [torch.randn(2, 4, 8, 8), [torch.zeros(5)]]

def get_init_inputs():
    return []
""",
)


@pytest.mark.slow
def test_the_code_of_a_reference_tells_the_buffers_and_inputs_that_it_changes(worker):
    (answer,) = worker.ask("compiled", task=CHANGING.to_json(), variants=["default"]).values()
    (case,) = Compiled.from_json(answer["compiled"]).cases
    sources = {argument.name: argument.source for argument in case.arguments}
    assert {sources[name] for name in case.mutated} == {
        *(f"bn.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")),
        "cache[0]",
    }


def test_a_variant_that_nobody_knows_is_refused_in_words(worker):
    reply = worker.send("compiled", task=FRAGILE.to_json(), variants=["default", "best"]).result(60)
    assert "variant 'best': choose of default" in reply["error"]["message"]


class Remembering(nn.Module):
    """Its state is a tensor that torch does not know of."""

    def __init__(self):
        super().__init__()
        self.last = torch.zeros(4)

    def forward(self, x):
        self.last.copy_(x)
        return self.last + 1


@pytest.mark.parametrize("variant", ["default", WHOLE])
def test_a_reference_with_a_state_that_is_no_buffer_is_refused(variant):
    with pytest.raises(UsageError, match=r"cannot be exported: .*last is mutated"):
        compile_model(Remembering().eval(), [torch.ones(4)], settings(variant))
