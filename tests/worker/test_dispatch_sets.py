"""Sets of programs as the judge sees them: one correct program with kernels of its own.

Invariants: programs with equal names, of different languages, and with weights that they pack when
they are constructed, stand in one module; calls of other shapes get the reference, or an error.
"""

import copy
from dataclasses import replace

import pytest
import torch

from evolve.app.dispatch.fallback import fallback_of
from evolve.app.dispatch.module import Row, registered, set_text
from evolve.app.dispatch.signatures import case_signatures
from evolve.core.evaluation import Status
from evolve.core.task import Case, Task
from evolve.languages.registry import languages_in
from tests.worker.serving import Worker

TASK = Task(
    name="scaled",
    size="tiny",
    source="""
# SPDX-License-Identifier: MIT
import torch
from torch import nn
import math

ROWS = 8
GAIN = 2.0


def scaled(x, weight):
    return x * weight * GAIN


def never_used():
    return math.pi


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return scaled(x, self.weight)


def get_inputs():
    return [torch.randn(ROWS, 16)]


def get_init_inputs():
    return [16]
""",
    cases=(Case(name="few", constants={"ROWS": 4}), Case(name="many", constants={"ROWS": 64})),
)
HEAD = """
import torch
from torch import nn
{imports}

GAIN = 2.0
"""
MODEL = """

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
        self.packed = self.weight.detach() * GAIN

    def forward(self, x):
        y = torch.empty_like(x)
        {call}
        return y
"""
CPP = (
    HEAD.format(imports="from tvm_ffi.cpp import load_inline as build")
    + '''
SOURCE = """
void scale(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  const float* a = static_cast<const float*>(x.data_ptr());
  const float* b = static_cast<const float*>(w.data_ptr());
  float* c = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) c[i] = a[i] * b[i % w.numel()];
}
"""
kernel = build("scale", cpp_sources=SOURCE, functions="scale", extra_cflags=["-O3"])
'''
    + MODEL.format(call="kernel.scale(x, self.packed, y)")
)
CUDA = (
    HEAD.format(imports="from tvm_ffi.cpp import load_inline as build")
    + '''
SOURCE = """
#include <tvm/ffi/extra/c_env_api.h>

__global__ void each(const float* x, const float* w, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * w[i % width];
}

void scale(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  int n = x.numel();
  cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  each<<<(n + 63) / 64, 64, 0, stream>>>(static_cast<const float*>(x.data_ptr()),
      static_cast<const float*>(w.data_ptr()), static_cast<float*>(y.data_ptr()), n, w.numel());
}
"""
kernel = build("scale", cuda_sources=SOURCE, functions="scale")
'''
    + MODEL.format(call="kernel.scale(x, self.packed, y)")
)
TRITON = (
    HEAD.format(imports="import triton\nimport triton.language as tl")
    + """
B = tl.constexpr(16)


@triton.jit
def kernel(x, w, y, n):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n) * tl.load(w + at % 16)
    tl.store(y + at, value, mask=at < n)
"""
    + MODEL.format(call="kernel[(triton.cdiv(x.numel(), 16),)](x, self.packed, y, x.numel())")
)


def composed(*programs: str, fallback: str | None = None) -> str:
    signatures = case_signatures(TASK)
    rows = [
        Row(signature=signatures[case], program=min(place, len(programs) - 1), remark=case)
        for place, case in enumerate(signatures)
    ]
    return set_text(["A set."], programs, rows, fallback_of(TASK) if fallback is None else fallback)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "programs", [(CPP, CPP.replace("b[i % w.numel()]", "b[i % 16]")), (TRITON, TRITON + "\n# 2\n")]
)
def test_programs_of_equal_names_are_one_correct_program(worker, programs):
    verdict = worker.evaluate(composed(*programs), TASK, "check")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom


@pytest.mark.slow
def test_each_call_goes_to_its_own_program(worker):
    wrong = CPP.replace("a[i] * b", "2 * a[i] * b")
    verdict = worker.evaluate(composed(CPP, wrong), TASK, "check")
    assert verdict.status is Status.WRONG_VALUE
    assert "case many" in verdict.feedback, verdict.feedback


def test_calls_of_other_shapes_get_the_reference_which_is_no_kernel(worker):
    rows = [Row(signature=case_signatures(TASK)["few"], program=0, remark="few")]
    text = set_text(["A set."], [CPP, CPP], rows, fallback_of(TASK))
    verdict = worker.evaluate(text, TASK, "check")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom is False


SETUP = """
import torch

SCALES = {}
UNUSED = 3


@torch.library.custom_op("scaling::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.scaling.twice(x) * SCALES["gain"] + self.shift


def scale(x):
    SCALES["gain"] = x


scale(3.0)
Model.shift = 1.0
if __name__ == "__main__":
    print(UNUSED)


def get_inputs():
    return [torch.randn(ROWS, 16)]


ROWS, WIDTH = int(4), 16
COUNT: int = 2


def get_init_inputs():
    return []
"""


@pytest.mark.slow  # a set is judged in the test of equal names
def test_the_fallback_keeps_what_the_reference_does_at_its_top_level(worker):
    """An empty table: no member of the set serves any shape, so the reference makes every call."""
    task = Task(name="setup", source=SETUP, size="tiny", cases=TASK.cases)
    member = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x\n"
    fallback = fallback_of(task)
    assert "UNUSED" not in fallback and "get_inputs" not in fallback and "ROWS" not in fallback
    assert "COUNT" not in fallback
    verdict = worker.evaluate(set_text(["A set."], [member, member], [], fallback), task, "check")
    assert verdict.status is Status.CORRECT, verdict.feedback


@pytest.mark.slow
def test_calls_of_other_shapes_are_refused_without_a_reference(worker):
    rows = [Row(signature=case_signatures(TASK)["few"], program=0, remark="few")]
    verdict = worker.evaluate(set_text(["A set."], [CPP, CPP], rows, ""), TASK, "check")
    assert verdict.status is Status.RUNTIME_EXCEPTION
    assert "no program for calls like" in verdict.feedback


@pytest.mark.gpu
def test_programs_of_different_languages_are_one_program(tmp_path):
    serving = Worker(tmp_path, "--device", "cuda")
    try:
        verdict = serving.evaluate(composed(TRITON, CUDA), TASK, "check")
    finally:
        serving.close()
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom


def plain(factor: float) -> str:
    """A program of torch alone, which reads its weight in each call."""
    call = MODEL.format(call=f"y.copy_(x * self.weight * {factor})").replace("* GAIN", "")
    return HEAD.format(imports="") + call


def executed(text: str):
    scope: dict = {"__name__": "kernel"}
    exec(compile(text, "kernel.py", "exec"), scope)
    return scope["ModelNew"]


def test_all_programs_of_a_set_have_one_state():
    model = executed(composed(plain(2.0), plain(3.0)))(16)
    x, many = torch.ones(4, 16), torch.ones(64, 16)
    assert [*model.state_dict()] == ["weight"]
    model.load_state_dict({"weight": torch.full((16,), 5.0)})
    assert model(x)[0, 0] == 10
    assert model(many)[0, 0] == 15
    model.weight.data.fill_(1.0)
    assert model(many)[0, 0] == 3
    other = copy.deepcopy(model)
    other.weight.data.fill_(7.0)
    assert (other(many)[0, 0], model(many)[0, 0]) == (21, 3)
    assert other.double()(many.double())[0, 0] == 14  # another dtype: the reference
    assert model(torch.ones(5, 16))[0, 0] == 2  # the reference, with the same weight
    assert not any(part.training for part in model.eval()._others)


def test_the_fallback_is_what_the_reference_needs_and_no_more():
    text = fallback_of(TASK)
    assert "never_used" not in text and "math" not in text and "get_inputs" not in text
    assert "GAIN = 2.0" in text and "def scaled" in text
    assert text.startswith("# SPDX-License-Identifier: MIT")


@pytest.mark.parametrize(
    "source",
    [
        TASK.source.replace("* GAIN", "* ROWS"),  # set by cases
        TASK.source.replace("import math", "from evolve.core import digest as GAINS").replace(
            "* GAIN", "* GAINS"
        ),
    ],
)
def test_a_reference_that_cannot_stand_alone_is_left_out(source):
    assert fallback_of(Task(name="t", source=source, cases=TASK.cases)) == ""


OF_THE_JUDGE = """
from evolve.testing.suite_tasks.captured import drawn

BASE = dict(ROWS=8)
SIZES = {"tiny": BASE, "cpu": dict(ROWS=64), "gpu": dict(BASE)}
MODE = str("eval")
NAN = PRECISION = str("fp32")
CALLS = {"few": 1}
"""


def test_imports_and_tables_of_the_inputs_alone_are_no_part_of_the_fallback():
    source = TASK.source.replace("import math", f"import math\n{OF_THE_JUDGE}").replace(
        "return [torch.randn(ROWS, 16)]", "return drawn(globals(), CALLS)"
    )
    text = fallback_of(Task(name="t", source=source, size="tiny"))
    assert "class Model" in text
    assert "evolve" not in text and "SIZES" not in text and "MODE" not in text


@pytest.mark.parametrize("used", ["drawn", "SIZES['tiny']['ROWS']", "ROWS"])
def test_a_reference_that_uses_them_itself_is_left_out(used):
    source = TASK.source.replace("ROWS = 8", f"ROWS = 8\n{OF_THE_JUDGE}")
    source = source.replace("* GAIN", f"* {used}")
    assert fallback_of(Task(name="t", source=source)) == ""


SETTING_SIZES = [
    'SIZES["gpu"] = {"ROWS": 4096}',
    'SIZES["gpu"]["ROWS"] = 4096',
    'SIZES["gpu"] |= {"ROWS": 4096}',
    'SIZES |= {"gpu": {"ROWS": 4096}}',
    "SIZES.update(gpu=dict(ROWS=4096))",
    'SIZES.setdefault("gpu", {})["ROWS"] = 4096',
    'SIZES["gpu"].update(ROWS=4096)',
    'for size, rows in (("cpu", 64), ("gpu", 4096)):\n    SIZES[size] = dict(ROWS=rows)',
    'for size in ("cpu", "gpu"):\n    one = dict(ROWS=64)\n    SIZES[size] = one',
    'if torch.cuda.is_available():\n    SIZES["gpu"] = {"ROWS": 4096}',
    'if torch.cuda.is_available():\n    pass\nelse:\n    SIZES.update(gpu={"ROWS": 4096})',
    'try:\n    SIZES["gpu"]["ROWS"] = 4096\nexcept KeyError:\n    pass',
    'GPU = dict(SIZES["cpu"])\nGPU["ROWS"] = 4096\nSIZES["gpu"] = GPU',
    'def sizes():\n    return {"ROWS": 4096}\n\n\nSIZES["gpu"] = sizes()',
]
UNSETTING_SIZES = ['del SIZES["gpu"]', 'SIZES.pop("gpu", None)', "SPARE = 3\ndel SPARE"]


def with_sizes(statements: str) -> Task:
    sizes = 'SIZES = {"tiny": {}, "cpu": {}, "gpu": {}}'
    source = TASK.source.replace("ROWS = 8", f"ROWS = 8\n{sizes}\n{statements}")
    return Task(name="t", source=source, size="tiny")


@pytest.mark.parametrize("statements", [*SETTING_SIZES, *UNSETTING_SIZES])
def test_statements_about_sizes_leave_the_reference_in(statements):
    text = fallback_of(with_sizes(statements))
    assert "class Model" in text
    assert "SIZES" not in text and "SPARE" not in text


@pytest.mark.parametrize("statements", SETTING_SIZES)
def test_a_reference_that_uses_what_such_a_statement_sets_is_left_out(statements):
    task = with_sizes(statements)
    assert fallback_of(replace(task, source=task.source.replace("* GAIN", "* ROWS"))) == ""


@pytest.mark.parametrize(
    "statements",
    [
        "if math.pi > 3:\n    GAIN = 3.0\nelse:\n    GAIN = 4.0",
        "for step in range(3):\n    GAIN += step",
        "try:\n    GAIN = undefined\nexcept NameError:\n    GAIN = 3.0",
        'TABLE = {"gain": 3.0}\nTABLE["gain"] = 3.0\nGAIN = TABLE["gain"]',
        "GAINS = [1.0]\nGAINS.append(3.0)\nGAIN = GAINS[-1]\ndel GAINS",
        "GAIN = 3.0\nassert GAIN == 3.0",
        "torch.set_default_dtype(torch.float32)",
        "class Holder:\n    pass\n\n\nHolder.gain = 3.0\nGAIN = Holder.gain",
    ],
)
def test_statements_that_the_reference_needs_are_all_in_the_set(statements):
    source = TASK.source.replace("GAIN = 2.0", f"GAIN = 2.0\n{statements}")
    text = fallback_of(replace(TASK, source=source))
    own, kept = {"__name__": "task"}, {"__name__": "set"}
    exec(source, own)
    exec(text, kept)
    assert kept["GAIN"] == own["GAIN"]
    if "set_default" in statements:
        assert statements in text


def test_a_set_is_in_the_languages_of_its_programs():
    names = {one.name for one in languages_in(composed(TRITON, CPP))}
    assert names == {"triton", "cpp"}


def test_operators_that_programs_register_are_found():
    source = 'import torch\nLIB = torch.library.Library("mine", "DEF")\nOP = "mine::gate"\n'
    assert registered(source) == {"mine::gate"}
    assert registered('SOURCE = "TORCH_LIBRARY(gates, m) {}"') == {"gates::"}
