"""Standalone kernels from Inductor's: plain `@triton.jit`, an explicit grid, open tunables."""

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from operators.local.inductor.blocks import Blocks, choose
from operators.local.inductor.layout import body_text
from operators.local.inductor.neighbours import side_by_side
from operators.local.inductor.products import Product
from operators.local.inductor.reading import NotConvertible, RawKernel
from operators.local.inductor.running import with_values_compared
from operators.local.inductor.tidy import tidy
from operators.local.inductor.values import is_copy, named

TEMPLATE = "template"  # Inductor's name for kernels of its templates in tuning
_PREFIX = re.compile(r"^triton_[a-z]+_fused_*")
_MAX_NAME = 28
_STEP = " " * 4
_LAUNCH = re.compile(r"^[XYZ]BLOCK$|^R\d_BLOCK$")
_SIZE = re.compile(r"^([xyz]|r\d_)numel$")
_DIMENSIONS = "xyz"
_MAX_GRID = 65535  # of the second and third dimension, in CUDA

# Functions that `triton.language` has itself. Those of libdevice stay: `tl.exp` is less exact than
# `libdevice.exp` (ex2.approx: a relative error near |x| * 6e-8).
_IN_LANGUAGE = frozenset(
    (
        *("abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "fma", "log", "log2", "rsqrt"),
        *("sigmoid", "sin", "sqrt", "sqrt_rn"),
    )
)
# Of device functions, if the plain name would hide a builtin, or torch has two: `fmax2` (2.15)
# skips NaN, in softmax only, whose sum is NaN then with either maximum.
_OTHER_NAMES = {"any": "any_of", "fmax2": "max2"}
_OPERANDS = {  # choices of arithmetic follow: `use_fast_math`, and from 2.15 `strict_signed_zero`
    "online_softmax_combine": 3,
    "online_softmax_combine_with_sum": 4,
    "online_softmax_reduce": 3,
}
_EXTREMES = ("maximum", "minimum")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the program.

    Attributes:
        name: the function's.
        definitions: source of it and of functions of its own, by name.
        names: all names that its text has, our device functions among them.
        positions: which of the arguments that Inductor passes remain.
        grid: an expression over the tunables.
        blocks: tunables with their choices, by parameter of the launch.
        operations: of ATen that it computes.
    """

    name: str
    definitions: dict[str, str]
    names: frozenset[str]
    positions: tuple[int, ...]
    grid: str
    blocks: dict[str, Blocks]
    operations: tuple[str, ...] = ()
    launch: dict[str, str] = field(default_factory=dict)  # module constants by parameter

    def without_prefix(self) -> "Kernel":
        """The same with tunables of plain names."""
        plain = {constant: parameter.upper() for parameter, constant in self.launch.items()}
        grid = re.sub(r"\w+", lambda match: plain.get(match[0], match[0]), self.grid)
        blocks = {plain.get(name, name): found for name, found in self.blocks.items()}
        launch = {parameter: plain[name] for parameter, name in self.launch.items()}
        return replace(self, grid=grid, blocks=blocks, launch=launch)


def kernel_name(raw: RawKernel) -> str:
    """Named after its computation; a kernel that only moves elements has a general name."""
    return "copy" if _moves(raw) else short_name(raw.function.name)


def _moves(raw: RawKernel) -> bool:
    return raw.heuristic == "pointwise" and is_copy(raw.function.body)


def _purpose(raw: RawKernel) -> tuple[str, ...]:
    return (f"a copy for {', '.join(raw.operations)}",) if _moves(raw) else raw.operations


def short_name(name: str) -> str:
    """`softmax_gelu` for `triton_per_fused__softmax_gelu_1`."""
    base = re.sub(r"_\d+$", "", _PREFIX.sub("", name))
    base = re.sub(r"__+", "_", base).strip("_") or "copy"
    while len(base) > _MAX_NAME and "_" in base:
        base = base.rpartition("_")[0]
    return base if base.isidentifier() else f"k_{base}"


def constant_name(prefix: str, parameter: str) -> str:
    """`SOFTMAX_NUM_WARPS`."""
    return f"{prefix}{parameter.upper()}"


def convert_kernel(raw: RawKernel, name: str, pointers: Mapping[int, str], prefix: str) -> Kernel:
    """Rewrite a kernel.

    Args:
        raw: the kernel.
        name: its new name.
        pointers: names for its parameters, by position; the others are unchanged.
        prefix: of the module constants that are its tunables.

    Raises:
        NotConvertible: it has a size that is known at run time only, or an unknown kind of grid.
    """
    return _converted(raw, name, tuple(pointers.items()), prefix)


@lru_cache(maxsize=128)  # programs of the same code, with other kernels of the project beside these
def _converted(
    raw: RawKernel, name: str, pointer_names: tuple[tuple[int, str], ...], prefix: str
) -> Kernel:
    function, pointers = raw.function, dict(pointer_names)
    sizes = _sizes(function)
    parameters = [argument.arg for argument in function.args.args]
    blocked = [p for p in parameters if _LAUNCH.match(p)]
    passed = [p for p in parameters if p not in blocked]
    positions = tuple(at for at, p in enumerate(passed) if p not in sizes)
    _require_known(raw, passed, sizes)
    renamed = {passed[at]: pointers[at] for at in positions if at in pointers}
    written = _Rewriter(renamed).rewritten(function.body)
    if "reduction" in raw.heuristic:
        written = with_values_compared(side_by_side(written))
    body = named(tidy(written))
    blocks = choose(raw, sizes, blocked, _always_true(function))
    arguments = [renamed.get(passed[at], passed[at]) for at in positions]
    signature = ", ".join([*arguments, *(f"{block}: tl.constexpr" for block in blocked)])
    text = body_text(body, _STEP)
    own = {helper.name: _helper_text(helper) for helper in raw.helpers}
    definition = f"@triton.jit\ndef {name}({signature}):\n{text}"
    whole = "\n".join([definition, *own.values()])
    return Kernel(
        name=name,
        definitions=own | {name: definition},
        names=frozenset(_names(whole)),
        positions=positions,
        grid=_grid(raw, sizes, prefix),
        blocks={constant_name(prefix, block): choices for block, choices in blocks.items()},
        operations=_purpose(raw),
        launch={block: constant_name(prefix, block) for block in blocks},
    )


def convert_product(
    product: Product, raw: RawKernel, name: str, pointers: Mapping[int, str], prefix: str
) -> Kernel:
    """Rewrite a kernel of one of Inductor's templates; arguments as of `convert_kernel`."""
    positions = tuple(range(len(product.parameters)))
    renamed = {product.parameters[at]: pointers[at] for at in positions if at in pointers}
    body = named(tidy(_Rewriter(renamed).rewritten(product.body())))
    tunables = product.tunables()
    constants = [parameter for parameter in tunables if parameter.isupper()]
    arguments = [renamed.get(parameter, parameter) for parameter in product.parameters]
    signature = ", ".join([*arguments, *(f"{constant}: tl.constexpr" for constant in constants)])
    definition = f"@triton.jit\ndef {name}({signature}):\n{body_text(body, _STEP)}"
    return Kernel(
        name=name,
        definitions={name: definition},
        names=frozenset(_names(definition)),
        positions=positions,
        grid=product.grid(prefix),
        blocks={constant_name(prefix, known): choices for known, choices in tunables.items()},
        operations=raw.operations,
        launch={parameter: constant_name(prefix, parameter) for parameter in tunables},
    )


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _require_known(raw: RawKernel, passed: Sequence[str], sizes: Mapping[str, int]) -> None:
    for parameter in passed:
        if _SIZE.match(parameter) and parameter not in sizes:
            raise NotConvertible(f"{parameter} of {raw.function.name} is known at run time only")
        if parameter.startswith(("ks", "ws_ptr", "seed", "load_seed")):
            raise NotConvertible(f"{raw.function.name} has a parameter {parameter}")


def _sizes(function: ast.FunctionDef) -> dict[str, int]:
    """Numbers of elements by dimension, which the body states."""
    found = {}
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as size)):
                if _SIZE.match(name):
                    found[name] = size
    return found


def _always_true(function: ast.FunctionDef) -> frozenset[str]:
    """Dimensions (`x`, `r0_`) without a mask: blocks have to divide their sizes."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and "True, tl.int1" in ast.unparse(node.value):
            name = ast.unparse(node.targets[0])
            if name.endswith("mask"):
                found.add(name.removesuffix("mask"))
    return frozenset(found)


def _grid(raw: RawKernel, sizes: Mapping[str, int], prefix: str) -> str:
    meta = raw.settings.get("inductor_meta")
    kind = meta.get("grid_type") if isinstance(meta, dict) else None
    dimensions = {"Grid1D": 1, "Grid2D": 2, "Grid2DWithYZOverflow": 2, "Grid3D": 3}.get(str(kind))
    if dimensions is None:
        raise NotConvertible(f"a grid of the kind {kind}")
    counts = [
        f"triton.cdiv({sizes[f'{d}numel']}, {prefix}{d.upper()}BLOCK)"
        for d in _DIMENSIONS[:dimensions]
        if f"{d}numel" in sizes
    ]
    if len(counts) < dimensions:
        raise NotConvertible(f"{raw.function.name} does not state the size of its grid")
    if kind == "Grid2DWithYZOverflow":
        layers = f"triton.cdiv({counts[1]}, {_MAX_GRID})"
        counts = [counts[0], f"triton.cdiv({counts[1]}, {layers})", layers]
    return f"({', '.join(counts)},)" if len(counts) == 1 else f"({', '.join(counts)})"


class _Rewriter(ast.NodeTransformer):
    """Names of parameters, and functions if our functions or the language's own will do."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed = renamed

    def rewritten(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(node) for node in copy.deepcopy(body)]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._renamed.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _OPERANDS:
                node.args = node.args[: _OPERANDS[name]]
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="tl"), attr=name),
                args=[left, right, ast.Attribute(attr="ALL")],  # tl.PropagateNan (2.15)
            ) if name in _EXTREMES:
                return ast.Call(ast.Name(name, ast.Load()), [left, right], [])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        match node.value:
            case ast.Name(id="triton_helpers"):
                return ast.Name(_OTHER_NAMES.get(node.attr, node.attr), ast.Load())
            case ast.Name(id="tl_math") if node.attr in _IN_LANGUAGE:
                return ast.Attribute(ast.Name("tl", ast.Load()), node.attr, ast.Load())
            case ast.Name(id="tl_math"):
                return ast.Attribute(ast.Name("libdevice", ast.Load()), node.attr, ast.Load())
        self.generic_visit(node)
        return node


def _helper_text(helper: ast.FunctionDef) -> str:
    body = "\n".join(ast.unparse(node) for node in _Rewriter({}).rewritten(helper.body))
    arguments = ", ".join(argument.arg for argument in helper.args.args)
    return f"@triton.jit\ndef {helper.name}({arguments}):\n{_indented(body)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
