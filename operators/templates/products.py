"""Kernels of ours for the products that Inductor leaves to vendors' libraries.

A product is an `extern_kernels` call of the output code: `mm`, `addmm`, `bmm`, `baddbmm`,
`convolution`. Each becomes a launch of a template, with tunables of its own; what Inductor fused
around it stays as it is.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evolve.core.compiled import Compiled, CompiledCase
from operators.inductor.kernels import Kernel
from operators.inductor.reading import OutputCode, Statement
from operators.templates import convolution, matmul
from operators.templates.launch import Launch
from operators.templates.tensors import FLOAT32, Tensors, keywords

PRECISIONS = ("bf16x6", "tf32x3", "bf16x3", "ieee")
"""What `tl.dot` makes of float32: sums of products of narrower parts, or float32 throughout.

Against cuBLAS's own float32 (error 1.1e-6), on an H200 with Triton 3.6 at 4096^3: bf16x6 2.1e-7,
tf32x3 2.4e-7, bf16x3 4.4e-6; ieee uses no tensor cores.
"""
HALF = ("ieee",)  # float16 and bfloat16 are multiplied as they are
_INEXACT = ("tf32",)  # rounds its operands

_LIBRARY = "extern_kernels"
_GPU = "torch.cuda._DeviceGuard("  # in code for the CPU nothing is guarded
_MATRICES = {"mm": 3, "addmm": 4, "bmm": 3, "baddbmm": 4}  # tensors: operands and the result
_OWN_TUNABLES = 8  # launches that differ; where there are more, all of a kernel share theirs


def precisions(accumulation: str) -> tuple[str, ...]:
    """What `tl.dot` may make of float32 in a task that allows this arithmetic (`Task`)."""
    return PRECISIONS if accumulation == "ieee" else (*_INEXACT, *PRECISIONS)


def has_products(compiled: Compiled) -> bool:
    """Whether the code, written for a GPU, calls a product that a template may do."""
    calls = [f"{_LIBRARY}.{name}(" for name in (*_MATRICES, "convolution")]
    code = "".join(case.code for case in compiled.cases)
    return _GPU in code and any(call in code for call in calls)


class Products:
    """Replaces the calls of a case; an `operators.inductor.Substitute`.

    Args:
        precisions: for float32, of those that `tl.dot` takes, the first to begin with.
    """

    def __init__(self, precisions: Sequence[str] = PRECISIONS) -> None:
        self._precisions = tuple(precisions)

    def __call__(
        self, case: CompiledCase, code: OutputCode, taken: set[str]
    ) -> tuple[OutputCode, dict[str, Kernel]]:
        """The code without the calls that a template can do, and the kernels."""
        tensors = Tensors(case.arguments, code.statements)
        precisions = self._precisions if tensors.dtype == FLOAT32 else HALF
        found = [(each, _replacement(each.node, tensors, precisions)) for each in code.statements]
        names = _Prefixes([one for _, new in found if new for one in new.launches], taken)
        statements: list[Statement] = []
        kernels: dict[str, Kernel] = {}
        for statement, new in found:
            if new is None:
                statements.append(statement)
                continue
            prefix = names[new.launches]
            written = [*new.before, *(n for one in new.launches for n in one.statements(prefix))]
            operations = [statement.operations, *[()] * (len(written) - 1)]
            statements += map(Statement, written, operations)
            for one in new.launches:
                kernels.setdefault(f"{prefix}{one.kernel}", one.described(prefix))
        return replace(code, statements=tuple(statements)), kernels


@dataclass(frozen=True, slots=True)
class _Replacement:
    """What stands for a call: statements that make room for its result, then launches."""

    launches: tuple[Launch, ...]
    before: tuple[ast.stmt, ...] = ()


class _Prefixes:
    """Of names of tunables. Launches that agree have one, and where there are many all of a kind.

    Args:
        launches: all of the program.
        taken: names of its kernels, to which those of tunables are added.
    """

    def __init__(self, launches: Sequence[Launch], taken: set[str]) -> None:
        self._are_many = len({one.signature for one in launches}) > _OWN_TUNABLES
        self._taken = taken
        self._known: dict[tuple[object, ...], str] = {}

    def __getitem__(self, launches: Sequence[Launch]) -> str:
        key = tuple(one.kernel if self._are_many else one.signature for one in launches)
        if key not in self._known:
            base = launches[0].kernel.removesuffix("_kernel")
            number, name = 1, base
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._taken.add(name)
            self._known[key] = f"{name.upper()}_"
        return self._known[key]


def _replacement(
    node: ast.stmt, tensors: Tensors, precisions: Sequence[str]
) -> _Replacement | None:
    """For a call that a template can do; None where it is none, or one of something else."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call):
            if ast.unparse(call.func) in (f"{_LIBRARY}.{known}" for known in _MATRICES):
                return _matrices(name, call, tensors, precisions)
        case ast.Assign(targets=[ast.Name(id=out)], value=ast.Call() as call):
            if ast.unparse(call.func) == f"{_LIBRARY}.convolution":
                return _convolution(out, call, tensors, precisions)
    return None


def _matrices(
    name: str, call: ast.Call, tensors: Tensors, precisions: Sequence[str]
) -> _Replacement | None:
    given = keywords(call)
    if given.get("alpha", 1) != 1 or given.get("beta", 1) != 1:
        return None
    targets = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
    operands = [tensors[node] for node in (*call.args, *targets)]
    known = [tensor for tensor in operands if tensor is not None]
    if len(known) < len(operands) or len(known) != _MATRICES[name]:
        return None
    *bias, a, b, out = known
    return _Replacement(matmul.launches(a, b, bias[0] if bias else None, out, precisions))


def _convolution(
    name: str, call: ast.Call, tensors: Tensors, precisions: Sequence[str]
) -> _Replacement | None:
    biases = [*call.args[2:], *(k.value for k in call.keywords if k.arg == "bias")]
    bias = next((tensors[node] for node in biases), None)
    has_bias = any(ast.unparse(node) != "None" for node in biases)
    x, weight = (tensors[node] for node in call.args[:2])
    out = tensors[ast.Name(name, ast.Load())]
    if x is None or weight is None or out is None or (has_bias and bias is None):
        return None
    settings = convolution.Settings.read(keywords(call))
    launch = convolution.launch(x, weight, bias, out, settings, precisions)
    room = f"{name} = empty_strided_cuda({out.shape}, {out.stride}, {tensors.dtype})"
    return _Replacement((launch,), tuple(ast.parse(room).body))
