"""Launches in a program of the compiler, which is Triton: their kernels, arguments and types."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from evolve.core.compiled import Argument, Compiled
from operators.local.inductor import NotConvertible
from operators.local.inductor.program import attribute

PARAGRAPH = "\n\n\n"
_MAX_THREADS = 1024  # of a block
_MAX_EACH = 32  # elements of a thread; with more it runs out of registers
_SAME_TYPE = ("as_strided", "contiguous", "detach", "clone")
_NOT_NEEDED = ("import triton", "from triton")
_KNOWN = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A launch of a kernel in a program: the statement, and its arguments."""

    node: ast.Expr
    kernel: str
    grid: ast.expr
    arguments: tuple[ast.expr, ...]
    options: Mapping[str, ast.expr]


def kernel_calls(tree: ast.Module) -> Iterator[KernelCall]:
    """All of a program."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Subscript(value=ast.Name(id=kernel), slice=grid)) as call
            ):
                options = {str(option.arg): option.value for option in call.keywords}
                yield KernelCall(node, kernel, grid, tuple(call.args), options)


class Kernels(NamedTuple):
    """The kernels of a program.

    Attributes:
        calls: all launches, in order.
        functions: those of the module, by name.
        types: types of tensors as torch names them, by kernel and parameter (`kinds_of`).
    """

    calls: list[KernelCall]
    functions: Mapping[str, ast.FunctionDef]
    types: Mapping[str, Mapping[str, str]]


def kernels_of(source: str, compiled: Compiled) -> Kernels:
    """Those that a program of the compiler launches.

    Raises:
        NotConvertible: the type of a tensor is unknown, or a kernel is launched for several.
    """
    tree = ast.parse(source)
    calls = list(kernel_calls(tree))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return Kernels(calls, functions, kinds_of(calls, functions, types_of(tree, compiled)))


def types_of(tree: ast.Module, compiled: Compiled) -> dict[str, str]:
    """Types of torch, by the texts of expressions."""
    found: dict[str, str] = {}
    for case in compiled.cases:
        found |= {_expression_of(one): one.dtype for one in case.arguments}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    module = next(node for node in classes if node.name == "ModelNew")
    for node in ast.walk(module):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                kind = _made_type(value) or found.get(_base(value), "")
                if kind and found.setdefault(name, kind) != kind:
                    raise NotConvertible(f"{name} is of several types")
    return found


def _expression_of(argument: Argument) -> str:
    if argument.kind == "constant":
        return f"self._{argument.name}"
    return argument.source if argument.kind == "input" else attribute(argument.source)


def _made_type(node: ast.expr) -> str:
    """Of `torch.empty(..., dtype=...)`."""
    match node:
        case ast.Call(keywords=named):
            return next((ast.unparse(one.value) for one in named if one.arg == "dtype"), "")
    return ""


def _base(node: ast.expr) -> str:
    """`x` of `x.contiguous()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _SAME_TYPE:
            return _base(value)
    return ast.unparse(node)


def _count(node: ast.expr) -> str:
    return ast.unparse(_Counts().visit(node))


class _Counts(ast.NodeTransformer):
    """`triton.cdiv(a, b)` without Triton."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(attr="cdiv"), args=[size, step]):
                text = f"-(-({ast.unparse(size)}) // ({ast.unparse(step)}))"
                return ast.parse(text, mode="eval").body
        return node


def counts(call: KernelCall) -> list[str]:
    """Numbers of blocks along the axes of a launch's grid, without Triton."""
    return [*map(_count, call.grid.elts if isinstance(call.grid, ast.Tuple) else [call.grid])]


def lanes(rows: str, columns: str, warps: str) -> str:
    """Threads of a row: as many as in Triton, or so many that none has more than a few elements."""
    of_all = "" if rows == "1" else f" // {rows}"
    enough = f"{columns} // {_MAX_EACH}"
    return f"min({columns}, {_MAX_THREADS}{of_all}, max(1, 32 * {warps}{of_all}, {enough}))"


def option(call: KernelCall, name: str) -> str:
    """The value of a parameter in a launch; a number is its own."""
    return ast.unparse(call.options[name]) if name in call.options else name


def flat_arguments(call: KernelCall, function: ast.FunctionDef) -> tuple[list[str], list[str]]:
    """Expressions of a kernel's tensors, as `flat` gives them, and of its constants, in order."""
    names = [argument.arg for argument in function.args.args]
    tensors = [f"flat({ast.unparse(each)})" for each in call.arguments]
    return tensors, [option(call, name) for name in names[len(tensors) :]]


def kinds_of(
    calls: list[KernelCall], functions: Mapping[str, ast.FunctionDef], types: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Types as torch names them, by kernel and by parameter that is a pointer.

    Raises:
        NotConvertible: one is unknown, or a kernel is launched for several.
    """
    found: dict[str, dict[str, str]] = {}
    for call in calls:
        names = [argument.arg for argument in functions[call.kernel].args.args]
        given = {
            name: _kind(types.get(_base(value), ""), value)
            for name, value in zip(names, call.arguments, strict=False)
            if ast.unparse(value) != "None"
        }
        if found.setdefault(call.kernel, given) != given:
            raise NotConvertible(f"{call.kernel} is launched for several types")
    return found


def _kind(name: str, value: ast.expr) -> str:
    kind = name.removeprefix("torch.")
    if kind not in _KNOWN:
        raise NotConvertible(f"{ast.unparse(value)[:40]} of the type {kind or 'unknown'}")
    return kind


def with_lines(source: str, new: Mapping[int, tuple[ast.stmt, str]]) -> str:
    """The source with statements replaced; by their first lines, with the new text of each."""
    lines = source.splitlines()
    for _, (node, text) in sorted(new.items(), reverse=True):
        indent = " " * node.col_offset
        lines[node.lineno - 1 : node.end_lineno] = [f"{indent}{line}" for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def without_triton(source: str) -> list[str]:
    """Paragraphs of the program without functions of Triton and imports of it."""
    paragraphs = source.rstrip("\n").split(PARAGRAPH)
    return [_without_imports(part) for part in paragraphs if "@triton.jit" not in part]


def _without_imports(part: str) -> str:
    return "\n".join(line for line in part.splitlines() if not line.startswith(_NOT_NEEDED))


def after_tunables(paragraphs: list[str], *new: str) -> str:
    """The program with further paragraphs below its tunables."""
    place = next(at for at, part in enumerate(paragraphs) if "\nTUNABLE = {" in part) + 1
    return PARAGRAPH.join([*paragraphs[:place], *new, *paragraphs[place:]]) + "\n"


def with_imports(source: str, *lines: str) -> str:
    """The program with further imports, before that of torch."""
    return source.replace(
        "\nimport torch\n", "".join(f"\n{line}" for line in lines) + "\nimport torch\n", 1
    )


def without_tunables(source: str, suffix: str) -> str:
    """The program without tunables whose names end so, which have no effect in its language."""
    name = rf"\w*{suffix}"
    found = re.sub(rf"^{name} = .*\n", "", source, flags=re.M)
    return re.sub(rf'^    "{name}": .*\n', "", found, flags=re.M)


def product_options(call: KernelCall) -> tuple[dict[str, str], bool]:
    """Of a launch by `batched_launch`: options, and whether there is a bias.

    Without one, strides of the result are in the place of its own.
    """
    options = {name: ast.unparse(value) for name, value in call.options.items()}
    has_bias = ast.unparse(call.arguments[2]) != "None"
    if not has_bias:
        options["BIAS_STRIDE"] = options["OUT_STRIDE"]
    return options, has_bias


def product_views(call: KernelCall, *, shared_once: bool = False) -> list[str]:
    """Arguments a, b, bias (in its place out, if there is none) and out: matrices of a batch.

    With `shared_once`, what a whole batch shares is a batch of one (but the bias).
    """
    options, has_bias = product_options(call)
    shape = call.options["SHAPE"]
    assert isinstance(shape, ast.Tuple)
    rows, columns, depth = map(ast.unparse, shape.elts)
    a, b, bias, out = map(ast.unparse, call.arguments)
    matrices = {
        "A_STRIDE": (a, f"{rows}, {depth}"),
        "B_STRIDE": (b, f"{depth}, {columns}"),
        "BIAS_STRIDE": (bias if has_bias else out, f"{rows}, {columns}"),
        "OUT_STRIDE": (out, f"{rows}, {columns}"),
    }

    def batch(stride: str) -> str:
        is_shared = shared_once and ast.literal_eval(options[stride])[0] == 0
        return "1" if is_shared and stride != "BIAS_STRIDE" else options["BATCH"]

    return [
        f"{name}.detach().as_strided(({batch(stride)}, {size}), {options[stride]})"
        for stride, (name, size) in matrices.items()
    ]


FLAT = '''def flat(tensor):
    """Its memory from the first element to the last."""
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((extent,), (1,))'''
"""A function of programs."""
