"""Programs of the compiler, which are Triton, in CUDA C++ for NVRTC.

Kernels become one text in C++, compiled when the program is imported, with tunables as parameters
of templates. A launch has as many threads as in Triton.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evolve.core.compiled import Argument, Compiled
from operators.local.inductor import NotConvertible
from operators.local.inductor.layout import MAX_LINE, call_text
from operators.local.inductor.program import attribute
from operators.local.ports.cuda_kernel import TYPES, CudaKernel
from operators.local.ports.library import with_library

_PARAGRAPH = "\n\n\n"
_TEXT = "CUDA_SOURCE"
_COMPILER = "torch.cuda._compile_kernel"
_SAME_TYPE = ("as_strided", "contiguous", "detach", "clone")
_NOT_NEEDED = ("import triton", "from triton")
_WIDTH = MAX_LINE - 8


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch in a program: its lines, and what it is given."""

    node: ast.Expr
    kernel: str
    grid: ast.expr
    arguments: tuple[ast.expr, ...]
    options: Mapping[str, ast.expr]


def rewritten(source: str, compiled: Compiled) -> str:
    """The program with its kernels in CUDA C++.

    Raises:
        NotConvertible: a kernel has an operation, a type or a shape that is not known here.
    """
    tree = ast.parse(source)
    launches = list(_launches(tree))
    types = _types(tree, compiled)
    kernels = dict(_kernels(tree, launches, types))
    text = _with_launches(source, launches, kernels)
    return _with_text(text, launches, kernels)


def _launches(tree: ast.Module) -> Iterator[_Launch]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Subscript(value=ast.Name(id=kernel), slice=grid)) as call
            ):
                options = {str(option.arg): option.value for option in call.keywords}
                yield _Launch(node, kernel, grid, tuple(call.args), options)


def _types(tree: ast.Module, compiled: Compiled) -> dict[str, str]:
    """Types of torch, by the texts of expressions."""
    found: dict[str, str] = {}
    for case in compiled.cases:
        found |= {_expression_of(one): one.dtype for one in case.arguments}
    named = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    module = next(node for node in named if node.name == "ModelNew")
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


def _kernels(
    tree: ast.Module, launches: list[_Launch], types: Mapping[str, str]
) -> Iterator[tuple[str, CudaKernel]]:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    known: dict[str, dict[str, str]] = {}
    for launch in launches:
        function = functions[launch.kernel]
        names = [argument.arg for argument in function.args.args]
        given = {
            name: _type(types.get(_base(value), ""), value)
            for name, value in zip(names, launch.arguments, strict=False)
        }
        if known.setdefault(launch.kernel, given) != given:
            raise NotConvertible(f"{launch.kernel} is launched for several types")
    for name, given in known.items():
        yield name, CudaKernel(functions[name], given)


def _type(name: str, value: ast.expr) -> str:
    kind = name.removeprefix("torch.")
    if kind not in TYPES:
        raise NotConvertible(f"{ast.unparse(value)[:40]} of the type {kind or 'unknown'}")
    return TYPES[kind]


# --- text -----------------------------------------------------------------------------------------


def _with_launches(
    source: str, launches: list[_Launch], kernels: Mapping[str, CudaKernel]
) -> str:
    lines = source.splitlines()
    for launch in sorted(launches, key=lambda one: -one.node.lineno):
        start, end = launch.node.lineno - 1, launch.node.end_lineno
        indent = re.match(r" *", lines[start])
        assert indent is not None
        new = _launch_text(launch, kernels[launch.kernel]).splitlines()
        lines[start:end] = [f"{indent[0]}{line}" for line in new]
    return "\n".join(lines) + "\n"


def _launch_text(launch: _Launch, kernel: CudaKernel) -> str:
    counts = launch.grid.elts if isinstance(launch.grid, ast.Tuple) else [launch.grid]
    numbers = [_count(each) for each in counts] + ["1"] * (3 - len(counts))
    rows = _option(launch, kernel.block.rows)
    lanes = _lanes_name(launch.kernel)
    threads = lanes if rows == "1" else f"{rows} * {lanes}"
    passed = ", ".join(map(ast.unparse, launch.arguments))
    arguments = [
        f"grid=({', '.join(numbers)})",
        f"block=({threads}, 1, 1)",
        f"args=[{passed}]",
    ]
    return call_text(f"{launch.kernel}(", arguments, _WIDTH)


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


def _option(launch: _Launch, name: str) -> str:
    """What a launch says of a parameter; a name of the kernel's own is a number."""
    return ast.unparse(launch.options[name]) if name in launch.options else name


def _lanes_name(kernel: str) -> str:
    return f"{kernel.removesuffix('_kernel').upper()}_LANES"


def _with_text(source: str, launches: list[_Launch], kernels: Mapping[str, CudaKernel]) -> str:
    """The source with C++ and its compilation in the place of functions of Triton."""
    paragraphs = source.rstrip("\n").split(_PARAGRAPH)
    kept = [part for part in paragraphs if "@triton.jit" not in part]
    kept = [_without_imports(part) for part in kept]
    whole = "\n\n".join(kernel.text for kernel in kernels.values())
    text = f'{_TEXT} = r"""\n{with_library(whole)}\n"""'
    made = [_compiled(launch, kernels[launch.kernel]) for launch in launches]
    at = next(place for place, part in enumerate(kept) if part.startswith("class ModelNew"))
    place = next(p for p, part in enumerate(kept) if "\nTUNABLE = {" in part) + 1
    new = [text, "\n".join(dict.fromkeys(made))]
    assert place <= at
    return _PARAGRAPH.join([*kept[:place], *new, *kept[place:]]) + "\n"


def _without_imports(part: str) -> str:
    lines = [line for line in part.splitlines() if not line.startswith(_NOT_NEEDED)]
    return "\n".join(lines)


def _compiled(launch: _Launch, kernel: CudaKernel) -> str:
    """The statements that choose how many threads a row has, and compile a kernel."""
    rows, columns = (_option(launch, name) for name in kernel.block[:2])
    warps = ast.unparse(launch.options["num_warps"])
    lanes = _lanes_name(launch.kernel)
    threads = f"32 * {warps}" if rows == "1" else f"32 * {warps} // {rows}"
    values = [
        lanes if name == "LANES" else _option(launch, name) for name in kernel.parameters
    ]
    named = ", ".join(f"{{{value}}}" for value in values)
    return (
        f"{lanes} = max(1, min({columns}, {threads}))\n"
        f'{launch.kernel} = {_COMPILER}({_TEXT}, f"{launch.kernel}<{named}>")'
    )
