"""Candidates for problems of KernelBench: right ones, wrong ones, and ones that do not compile.

All are Triton kernels put into the problem's own module: its `Model` becomes `ModelNew` with
another `forward`. Right ones of a problem differ in the sizes of their blocks; wrong ones change
the values that are stored; of those that do not compile one fails in Triton, one in Python.
"""

import ast
from dataclasses import dataclass

_HEAD = """
import triton
import triton.language as tl
"""

_EACH = """
@triton.jit
def each(x, out, n, {extra}B: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(x + at, mask=at < n, other=0.0)
    {before}
    value = {value}
    tl.store(out + at, {stored}, mask=at < n)
"""

_SOFTMAX = """
@triton.jit
def softmax(x, out, n, B: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * n
    most = tl.full((B,), -float("inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        at = start + tl.arange(0, B)
        v = tl.load(x + base + at, mask=at < n, other=-float("inf"))
        more = tl.maximum(most, v)
        total = total * tl.exp(most - more) + tl.exp(v - more)
        most = more
    peak = tl.max(most, 0)
    total = tl.sum(total * tl.exp(most - peak), 0)
    for start in range(0, n, B):
        at = start + tl.arange(0, B)
        v = tl.load(x + base + at, mask=at < n, other=-float("inf"))
        value = tl.exp(v - peak) / total
        tl.store(out + base + at, {stored}, mask=at < n)
"""

_LAYERNORM = """
@triton.jit
def mean_of(sums, row, n, parts: tl.constexpr):
    return tl.sum(tl.load(sums + row * parts + tl.arange(0, parts)), 0) / n

@triton.jit
def partial(x, sums, squares, n, parts: tl.constexpr, SECOND: tl.constexpr, B: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros((B,), tl.float32)
    centre = 0.0
    if SECOND:
        centre = mean_of(sums, row, n, parts)
    for start in range(part * B, n, parts * B):
        at = start + tl.arange(0, B)
        v = tl.where(at < n, tl.load(x + row * n + at, mask=at < n, other=0.0) - centre, 0.0)
        total += v * v if SECOND else v
    tl.store((squares if SECOND else sums) + row * parts + part, tl.sum(total, 0))

@triton.jit
def normalise(x, sums, squares, weight, bias, out, n, eps, parts: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * B + tl.arange(0, B)
    mean, variance = mean_of(sums, row, n, parts), mean_of(squares, row, n, parts)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0)
    w = tl.load(weight + at, mask=at < n, other=0.0)
    b = tl.load(bias + at, mask=at < n, other=0.0)
    value = (v - mean) * tl.rsqrt(variance + eps) * w + b
    tl.store(out + row * n + at, {stored}, mask=at < n)
"""

# Full fp32 arithmetic: TF32 would be outside of what the problems allow.
_PRODUCT = """
@triton.jit
def product(a, b, out, {extra}m, n, k, am, ak, bk, bn,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    at = tl.program_id(0) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None].to(tl.int64) * am + inner[None, :].to(tl.int64) * ak
    right = b + inner[:, None].to(tl.int64) * bk + at[None, :].to(tl.int64) * bn
    x = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p = tl.load(left, mask=(rows[:, None] < m) & (inner[None, :] < k - start), other=0.0)
        q = tl.load(right, mask=(inner[:, None] < k - start) & (at[None, :] < n), other=0.0)
        x = tl.dot(p, q, x, input_precision="ieee")
        left += BK * ak
        right += BK * bk
    {before}
    value = {value}
    place = rows[:, None].to(tl.int64) * n + at[None, :]
    tl.store(out + place, {stored}, mask=(rows[:, None] < m) & (at[None, :] < n))
"""

_CALL_EACH = """
y = torch.empty_like({first})
n = {first}.numel()
each[(triton.cdiv(n, {b}),)]({first}, y, n, {passed}B={b})
return y
"""
_CALL_SOFTMAX = """
y = torch.empty_like(x)
softmax[(x.shape[0],)](x, y, x.shape[1], B={b}, num_warps=8)
return y
"""
_CALL_LAYERNORM = """
y, rows = torch.empty_like(x), x.shape[0]
n = x.numel() // rows
sums, squares = torch.empty(2, rows, 64, device=x.device)
partial[(rows, 64)](x, sums, squares, n, parts=64, SECOND=False, B={b})
partial[(rows, 64)](x, sums, squares, n, parts=64, SECOND=True, B={b})
normalise[(rows, triton.cdiv(n, {b}))](
    x, sums, squares, self.ln.weight, self.ln.bias, y, n, self.ln.eps, parts=64, B={b})
return y
"""
_CALL_PRODUCT = """
a, b = {first}
(m, k), n = a.shape, b.shape[1]
y = torch.empty(m, n, device=a.device)
product[(triton.cdiv(n, 64), triton.cdiv(m, 64))](
    a, b, y, {passed}m, n, k, *a.stride(), *b.stride(), BM=64, BN=64, BK={b}, num_warps={warps})
return y
"""

_GELU = "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"
_SIGMOID = "(1.0 / (1.0 + tl.exp(-x)))"
_EXP = "e = tl.exp(tl.minimum(x, 20.0)); e = e * (e + 2.0)"  # mish is then x e / (e + 2)


@dataclass(frozen=True)
class Recipe:
    """How the candidates of a problem are made.

    Attributes:
        kernel: of the kernels above.
        forward: of the calls above.
        first: what `forward` takes first, an expression.
        value: the outcome in the kernel, of `x`.
        before: a statement of the kernel before that.
        extra: further parameters of the kernel, and `passed` what is passed for them.
    """

    kernel: str
    forward: str
    first: str = "x"
    value: str = "x"
    before: str = "pass"
    extra: str = ""
    passed: str = ""


def _linear(layer: str, value: str, before: str = "pass", bias: str = "", more: str = "") -> Recipe:
    """A product with a layer's weights, plus bias, and what follows; `more` is passed as `c`."""
    return Recipe(
        _PRODUCT, _CALL_PRODUCT, first=f"x, self.{layer}.weight.T", value=value,
        before=f"x += tl.load(bias + at, mask=at < n, other=0.0)[None, :]; {before}",
        extra="bias, c, " if more else "bias, ",
        passed=f"{bias or f'self.{layer}.bias'}, {more}{', ' if more else ''}",
    )  # fmt: skip


def _plain(first: str) -> Recipe:
    return Recipe(_PRODUCT, _CALL_PRODUCT, first=first)


GELU = Recipe(_EACH, _CALL_EACH, value=_GELU)
RELU2 = Recipe(_EACH, _CALL_EACH, value="tl.maximum(x, 0.0) * 2.0 + x")
MISH = Recipe(_EACH, _CALL_EACH, value="x * e / (e + 2.0)", before=_EXP)
SCALED_ROWS = Recipe(
    _EACH, _CALL_EACH, first="B", value="x * tl.load(d + at // m, mask=at < n, other=0.0)",
    extra="d, m, ", passed="A, B.shape[1], ",
)  # fmt: skip
SOFTMAX = Recipe(_SOFTMAX, _CALL_SOFTMAX)
LAYERNORM = Recipe(_LAYERNORM, _CALL_LAYERNORM)
PRODUCT = _plain("A, B")

RECIPES = {
    "1/19": Recipe(_EACH, _CALL_EACH, value="tl.maximum(x, 0.0)"),
    "1/88": Recipe(
        _EACH, _CALL_EACH,
        value="x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))",
    ),
    "1/12": SCALED_ROWS,
    "1/5": Recipe(_EACH, _CALL_EACH, first="A", value="x * s", extra="s, ", passed="s, "),
    "1/1": PRODUCT,
    "1/8": PRODUCT,
    "1/7": PRODUCT,
    "1/9": PRODUCT,
    "1/40": LAYERNORM,
    "1/23": SOFTMAX,
    "2/12": _linear("gemm", "tl.where(x > 0.0, 2.0 * x, 0.2 * x)"),
    "2/29": _linear("linear", "x * e / (e + 2.0)", before=f"{_EXP}; x = x * e / (e + 2.0); {_EXP}"),
    "2/40": _linear("matmul", "1.5 * x"),
    "2/53": _linear("gemm", _GELU, before="x = tl.minimum(tl.maximum(x * 0.5, -2.0), 2.0)"),
    "2/59": _linear("matmul", f"2.0 * x * {_SIGMOID}"),
    "2/63": _linear("linear", "tl.maximum(x, 0.0) / 2.0"),
    "2/68": _linear("linear", "tl.minimum(x, tl.load(c)) - tl.load(c)", more="self.constant"),
    "2/70": _linear("gemm", f"2.0 * {_SIGMOID} + x"),
    "2/76": _linear("gemm", "tl.maximum(x, 0.0)", bias="self.bias"),
    "2/86": _linear("linear", _GELU, before="x = x / 10.0"),
}  # fmt: skip

_SIZES = ((512, 32, 4), (1024, 16, 4), (2048, 32, 8), (4096, 16, 8), (256, 64, 4))
_WRONG = ("value - 1.0", "value * 1.01", "tl.where(at < n // 2, value, value * 0.0)")
_BROKEN = "tl.no_such_function(value)"


def candidates(problem: str, source: str) -> dict[str, list[str]]:
    """Sources by class: five `right`, three `wrong`, two `not compiling`.

    Args:
        problem: of `RECIPES`, as in `1/19`.
        source: the text of the problem's file.
    """
    recipe = RECIPES[problem]
    right = right_ones(recipe, source)
    wrong = [_program(recipe, source, stored, *_SIZES[1]) for stored in _WRONG]
    in_triton = _program(recipe, source, _BROKEN, *_SIZES[1])
    in_python = right[0].replace("def forward(self, ", "def forward(self ", 1)
    return {"right": right, "wrong": wrong, "not compiling": [in_triton, in_python]}


def right_ones(recipe: Recipe, source: str) -> list[str]:
    """Five right candidates for a task of this source, which differ in their blocks."""
    return [_program(recipe, source, "value", *size) for size in _SIZES]


def _program(recipe: Recipe, source: str, stored: str, b: int, bk: int, warps: int) -> str:
    kernel = recipe.kernel.format(
        value=recipe.value, before=recipe.before, extra=recipe.extra, stored=stored
    )
    call = recipe.forward.format(
        first=recipe.first, passed=recipe.passed, warps=warps,
        b=bk if recipe.kernel is _PRODUCT else b,
    )  # fmt: skip
    return f"{_HEAD}\n{kernel}\n{_model_new(source, call)}"


def _model_new(source: str, call: str) -> str:
    """The problem's module with `ModelNew` in the place of `Model`, without its inputs."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "ModelNew"
        elif isinstance(node, ast.ClassDef) and node.name == "Model":
            node.name = "ModelNew"
            (forward,) = (f for f in node.body if getattr(f, "name", "") == "forward")
            forward.body = ast.parse(call).body
    return ast.unparse(tree)
