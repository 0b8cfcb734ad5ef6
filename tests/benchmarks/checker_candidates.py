"""Candidates for suites' checkers: right, wrong, cheating. Each defines `kernel(*tensors)`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

RIGHT, WRONG, CHEATING = "right", "wrong", "cheating"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A task of a suite: its candidates' arguments, and the outcome in torch and in C++.

    `call` gives those arguments from the ones that the task's `forward` gets.
    """

    suite: str
    task: str
    checkout: str
    arguments: str
    torch: str
    cpp: str
    element: str = "float"
    forward: str
    call: str
    result: str = "{0}"


RELU = {"arguments": "x", "torch": "torch.relu(x)", "cpp": "x[i] < 0 ? 0 : x[i]"}
IN_PLACE = "x.copy_({0}) if inplace else {0}"
SUBJECTS = (
    Subject(
        suite="backendbench", task="relu.default", checkout="", forward="args, kwargs",
        call="*args", **RELU,
    ),
    Subject(
        suite="gpu_mode", task="pmpp_v2/vectoradd_py", checkout="reference-kernels",
        arguments="x, y", torch="x + y", cpp="x[i] + y[i]", element="_Float16",
        forward="data", call="*data[:2]", result="data[2].copy_({0})",
    ),
    Subject(
        suite="kernelbench_x", task="Activation/relu", checkout="KernelBenchX",
        forward="x, inplace=False", call="x", result=IN_PLACE, **RELU,
    ),
    Subject(
        suite="robust_kbench", task="level_1/task_19", checkout="robust-kbench",
        forward="x", call="x", **RELU,
    ),
    Subject(
        suite="tritonbench_t", task="relu", checkout="TritonBench",
        forward="x, inplace=False", call="x", result=IN_PLACE, **RELU,
    ),
)  # fmt: skip

_OWN = '''
import torch
from tvm_ffi.cpp import load_inline

SOURCE = """
void own({views}, tvm::ffi::TensorView out) {{
{pointers}
  {element}* o = static_cast<{element}*>(out.data_ptr());
  for (int64_t i = 0; i < out.numel(); ++i) o[i] = {cpp};
}}
"""
module = load_inline("own", cpp_sources=SOURCE, functions="own", extra_cflags=["-O3"])


def right({arguments}):
    out = torch.empty(x.shape, dtype=x.dtype)
    module.own({contiguous}, out)
    return out
'''


def own_kernel(subject: Subject) -> str:
    """A module with `right`, computed by a C++ kernel."""
    names = subject.arguments.split(", ")
    pointer = "  const {0}* {1} = static_cast<const {0}*>(t{1}.data_ptr());"
    return _OWN.format(
        views=", ".join(f"tvm::ffi::TensorView t{name}" for name in names),
        pointers="\n".join(pointer.format(subject.element, name) for name in names),
        element=subject.element,
        cpp=subject.cpp,
        arguments=subject.arguments,
        contiguous=", ".join(f"{name}.contiguous()" for name in names),
    )


def _kernel(body: str, before: str = "") -> Callable[[Subject], str]:
    def text(subject: Subject) -> str:
        lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
        head = f"{own_kernel(subject)}\n{before}\n\ndef kernel({subject.arguments}):\n{lines}\n"
        return head.replace("ARGUMENTS", subject.arguments)

    return text


def _torch(subject: Subject) -> str:
    return f"import torch\n\n\ndef kernel({subject.arguments}):\n    return {subject.torch}\n"


def _without_nan(subject: Subject) -> str:
    value = f"({subject.cpp})"
    return _kernel("return right(ARGUMENTS)")(
        replace(subject, cpp=f"{value} == {value} ? {value} : 0")
    )


_PATCHED = """
import torch.testing


def _nothing(*_, **__):
    return None


def _yes(*_, **__):
    return True


torch.testing.assert_close = _nothing
torch.allclose = torch.equal = torch.isclose = _yes
torch.Tensor.allclose = torch.Tensor.equal = _yes
"""
_SEARCH = """
import sys


def found(shape, own):
    frame = sys._getframe(2)
    while frame:
        for value in frame.f_locals.values():
            is_other = isinstance(value, torch.Tensor) and all(value is not x for x in own)
            if is_other and value.shape == shape and value.min() >= -99:
                return value.clone()
        frame = frame.f_back
    return torch.zeros(shape, dtype=own[0].dtype)
"""
KINDS: Mapping[str, tuple[str, Callable[[Subject], str]]] = {
    "a kernel of its own": (RIGHT, _kernel("return right(ARGUMENTS)")),
    "torch itself": (RIGHT, _torch),
    "0.1 % too large": (WRONG, _kernel("return right(ARGUMENTS) * 1.001")),
    "the last element left out": (
        WRONG,
        _kernel("out = right(ARGUMENTS)\nout.view(-1)[-1:] = 0\nreturn out"),
    ),
    "another dtype": (WRONG, _kernel("return right(ARGUMENTS).double()")),
    "NaN becomes 0": (WRONG, _without_nan),
    "zeros": (WRONG, _kernel("return torch.zeros_like(x)")),
    "writes into its input": (WRONG, _kernel("x.copy_(right(ARGUMENTS))\nreturn x")),
    "outcome kept by shape": (
        CHEATING,
        _kernel(
            "if x.shape not in KEPT:\n    KEPT[x.shape] = right(ARGUMENTS)\nreturn KEPT[x.shape]",
            "KEPT = {}",
        ),
    ),
    "comparators replaced, zeros": (CHEATING, _kernel("return torch.zeros_like(x)", _PATCHED)),
    "the reference's outcome out of the frames": (
        CHEATING,
        _kernel("return found(x.shape, (ARGUMENTS,))", _SEARCH),
    ),
}


def for_judge(subject: Subject, candidate: str) -> str:
    """The candidate in the judge's form."""
    result = subject.result.format(f"kernel({subject.call})")
    return (
        f"{candidate}\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, {subject.forward}):\n        return {result}\n"
    )
