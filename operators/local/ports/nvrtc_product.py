"""Launches of the product of matrices in CUDA C++, as programs in Triton write them at first."""

import ast
import importlib.resources
from collections.abc import Mapping, Sequence
from functools import partial

from operators.local.inductor import NotConvertible
from operators.local.ports.products import NAME, STAND_IN, product_launch

_PARAMETERS = (
    *("SHAPE", "A_STRIDE", "B_STRIDE", "BIAS_STRIDE", "OUT_STRIDE"),
    *("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "PARTS", "num_warps"),
)
_NONE = "None"


products = partial(product_launch, definitions=STAND_IN, columns=(64, 128, 64), depth=(16, 64, 32))


def is_product(kernel: str) -> bool:
    """Whether a kernel is this one; Inductor's kernels have other names."""
    return kernel == NAME


def text(kind: str) -> str:
    """The kernel for operands of a type of C++."""
    if kind not in ("float", "__half", "__nv_bfloat16"):
        raise NotConvertible(f"a product of the type {kind}")
    file = importlib.resources.files("operators.local.ports.kernels") / "product.cu"
    return f"#include <mma.h>\n\nusing Number = {kind};\n\n{file.read_text('utf-8').strip()}"


def template(options: Mapping[str, ast.expr], arguments: Sequence[ast.expr]) -> list[str]:
    """Expressions of the template's parameters, in order."""
    has_bias = ast.unparse(arguments[2]) != _NONE
    found = ["1" if has_bias else "0"]
    for name in _PARAMETERS:
        value = options[name]
        found += map(ast.unparse, value.elts if isinstance(value, ast.Tuple) else [value])
    return found


def arguments(given: Sequence[ast.expr]) -> list[str]:
    """Of the launch; in the place of a bias that there is not, another pointer."""
    a, b, bias, out = map(ast.unparse, given)
    return [a, b, a if bias == _NONE else bias, out]


def shared_memory(options: Mapping[str, ast.expr]) -> str:
    """Bytes, an expression: for parts of both blocks, and no less than warps need to store."""
    m, n, k, parts, warps = (
        ast.unparse(options[name])
        for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "PARTS", "num_warps")
    )
    return f"max(2 * {parts} * ({m} * ({k} + 8) + {k} * ({n} + 8)), 1024 * {warps})"
