"""Compiler seeds on a GPU: what this torch's Inductor writes for it, as programs of ours.

Invariant: under every setting of the compiler, a program computes what its reference does.

Needs torch, triton, numpy, pyyaml and jinja2. The references are what KernelBench is made of, at
sizes where Inductor writes different code: rows that one block holds, rows that it reads in a loop,
reductions that it cuts in two.
"""

import importlib.util
import re
from dataclasses import dataclass, replace

import pytest
import torch

from evolve.core.compiled import VARIANTS, WHOLE, Compiled
from evolve.core.task import Task
from evolve.worker.build.inductor import compile_model, settings

for name in ("yaml", "jinja2"):
    pytest.importorskip(name, reason="the package of operators needs it")

from operators.local.inductor import PRECISIONS, convert  # noqa: E402
from operators.local.structure import REWRITES, NotApplicable, TritonProgram  # noqa: E402
from operators.local.templates import Products  # noqa: E402

pytestmark = pytest.mark.gpu

_TASK = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}
    def forward(self, {arguments}):
        return {result}
"""


@dataclass(frozen=True)
class Reference:
    """The layers of a model, what it returns of `x`, `y`, and the inputs' makers."""

    layers: tuple[str, ...]
    result: str
    inputs: tuple[str, ...]

    @property
    def task(self) -> str:
        lines = "".join(f"        self.{layer}\n" for layer in self.layers)
        arguments = ", ".join("xyz"[: len(self.inputs)])
        return _TASK.format(layers=lines, arguments=arguments, result=self.result)


REFERENCES = {
    "softmax": Reference((), "F.softmax(x, dim=1)", ("torch.randn(300, 700)",)),
    "softmax_long": Reference((), "F.softmax(x, dim=1)", ("torch.randn(64, 40001)",)),
    "softmax_few": Reference((), "F.log_softmax(x, dim=1)", ("torch.randn(2, 1000003)",)),
    "softmax_first": Reference((), "F.softmax(x, dim=0)", ("torch.randn(999, 130)",)),
    "layernorm": Reference(
        ("ln = nn.LayerNorm((8, 64, 64))",), "self.ln(x)", ("torch.randn(16, 8, 64, 64)",)
    ),
    "rmsnorm": Reference(
        (), "x / (x.pow(2).mean(1, keepdim=True) + 1e-5).sqrt()", ("torch.randn(8, 64, 50, 50)",)
    ),
    "batchnorm": Reference(
        ("bn = nn.BatchNorm2d(24)",), "F.relu(self.bn(x))", ("torch.randn(8, 24, 33, 35)",)
    ),
    "groupnorm": Reference(
        ("gn = nn.GroupNorm(4, 24)",), "self.gn(x)", ("torch.randn(8, 24, 63, 65)",)
    ),
    "gelu": Reference(
        (), "F.gelu(x, approximate='tanh') + F.softplus(x)", ("torch.randn(4099, 33)",)
    ),
    "max": Reference((), "(x.max(1)[0], x.argmin(2))", ("torch.randn(16, 129, 257)",)),
    "norm": Reference((), "x / torch.norm(x, p='fro')", ("torch.randn(64, 4096)",)),
    "cumsum": Reference((), "torch.cumsum(x, 1)", ("torch.randn(1024, 4000)",)),
    "cross_entropy": Reference(
        (), "F.cross_entropy(x, y)", ("torch.randn(4096, 10)", "torch.randint(0, 10, (4096,))")
    ),
    "pool": Reference((), "F.avg_pool2d(F.max_pool2d(x, 2), 3)", ("torch.randn(4, 9, 66, 66)",)),
    "linear": Reference(
        ("fc = nn.Linear(256, 100)",),
        "torch.sigmoid(self.fc(x)).sum(1)",
        ("torch.randn(128, 256)",),
    ),
    "convolution": Reference(
        ("conv = nn.Conv2d(3, 16, 3)", "bn = nn.BatchNorm2d(16)"),
        "torch.tanh(self.bn(F.max_pool2d(self.conv(x), 2)))",
        ("torch.randn(8, 3, 34, 34)",),
    ),
    "attention": Reference(
        (),
        "torch.softmax(x @ y.transpose(-1, -2) / 8, -1) @ z",
        ("torch.randn(2, 4, 128, 64)",) * 3,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Written:
    """A model on the GPU with inputs, and the program that its compiled code becomes."""

    model: torch.nn.Module
    inputs: list[torch.Tensor]
    source: str

    def require_equal(self, source, path):
        path.write_text(source)
        program = _imported(path).ModelNew().eval().cuda()
        program.load_state_dict(self.model.state_dict())
        with torch.no_grad():
            expected, found = _flat(self.model(*self.inputs)), _flat(program(*self.inputs))
        assert len(expected) == len(found)
        for right, got in zip(expected, found, strict=True):
            assert right.stride() == got.stride()
            torch.testing.assert_close(got, right, rtol=2e-3, atol=2e-4)


def written(name, variant, port=None):
    """With a port, in its language."""
    reference = REFERENCES[name]
    namespace = {}
    exec(reference.task, namespace)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = namespace["Model"]().eval()
        inputs = [eval(text, {"torch": torch}) for text in reference.inputs]
    case = compile_model(model, inputs, settings(variant))
    compiled = Compiled(variant, torch.__version__, (replace(case, name="main"),))
    substitute = Products(fused=True) if variant == WHOLE else None
    rewrite = None
    if port:
        substitute, rewrite = Products(PRECISIONS, how=port.products), port.rewrite
    source = convert(reference.task, name, compiled, substitute, rewrite=rewrite)
    return Written(model, inputs, source)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_seed_computes_what_its_reference_does(name, variant, tmp_path):
    found = written(name, variant)
    found.require_equal(found.source, tmp_path / "program.py")


@pytest.mark.parametrize(
    ("name", "variant"),
    [*((name, "default") for name in REFERENCES), ("linear", "products")],
)
def test_a_seed_of_another_structure_computes_the_same(name, variant, tmp_path):
    found = written(name, variant)
    program, made = TritonProgram(found.source), 0
    for rewrite, function in REWRITES.items():
        for kernel in program.kernels:
            try:
                source = function(program, kernel)
            except NotApplicable:
                continue
            made += 1
            found.require_equal(source, tmp_path / f"{rewrite}_{made}.py")
    assert made


def test_a_seed_changes_the_buffers_that_its_reference_changes(worker):
    source = REFERENCES["convolution"].task + (
        "\ndef get_inputs():\n    return [torch.randn(8, 3, 34, 34)]\n"
        "\ndef get_init_inputs():\n    return []\n"
    )
    task = Task(name="training", source=source)
    (answer,) = worker.ask("compiled", task=task.to_json(), variants=["default"]).values()
    seed = convert(source, "training", Compiled.from_json(answer["compiled"]))
    verdict = worker.ask("evaluate", task=task.to_json(), source=seed, fidelity="screen")
    assert verdict["status"] == "correct", verdict["feedback"]
    wrong = re.sub(r"self\.bn\.running_mean\.copy_\(.*\)", "pass", seed)
    assert wrong != seed
    verdict = worker.ask("evaluate", task=task.to_json(), source=wrong, fidelity="screen")
    assert verdict["status"] == "wrong_value", verdict["feedback"]


def _imported(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _flat(output):
    return list(output) if isinstance(output, tuple) else [output]
