"""Programs of the compiler, which are Triton, in CUDA C++ for NVRTC.

Kernels become one text in C++, compiled when the program is imported, with tunables as parameters
of templates. A launch has as many threads as in Triton.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evolve.core.compiled import Argument, Compiled
from operators.local.inductor import NotConvertible
from operators.local.inductor.layout import MAX_LINE, call_text
from operators.local.inductor.program import attribute
from operators.local.ports import nvrtc_product
from operators.local.ports.base import Port
from operators.local.ports.cuda_kernel import TYPES, CudaKernel
from operators.local.ports.library import with_library

_PARAGRAPH = "\n\n\n"
_TEXT = "CUDA_SOURCE"
_COMPILER = "torch.cuda._compile_kernel"
_SAME_TYPE = ("as_strided", "contiguous", "detach", "clone")
_NOT_NEEDED = ("import triton", "from triton")
_WIDTH = MAX_LINE - 8
_MAX_THREADS = 1024  # of a block
_MAX_EACH = 32  # elements of a thread; with more it runs out of registers


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch in a program: its lines and arguments."""

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
    made = _named(launches, kernels)
    return _with_text(_with_launches(source, launches, made), kernels, made)


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


def _kernels(
    tree: ast.Module, launches: list[_Launch], types: Mapping[str, str]
) -> Iterator[tuple[str, CudaKernel | str]]:
    """By name; of products of matrices the text."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    known: dict[str, dict[str, str]] = {}
    for launch in launches:
        names = [argument.arg for argument in functions[launch.kernel].args.args]
        given = {
            name: _type(types.get(_base(value), ""), value)
            for name, value in zip(names, launch.arguments, strict=False)
            if ast.unparse(value) != "None"
        }
        if nvrtc_product.is_product(launch.kernel):
            given = {"a_ptr": _of_one_type(given)}
        if known.setdefault(launch.kernel, given) != given:
            raise NotConvertible(f"{launch.kernel} is launched for several types")
    for name, given in known.items():
        if nvrtc_product.is_product(name):
            yield name, nvrtc_product.text(given["a_ptr"])
        else:
            yield name, CudaKernel(functions[name], given)


def _of_one_type(given: Mapping[str, str]) -> str:
    if len({*given.values()}) != 1:
        raise NotConvertible("a product of several types")
    return next(iter(given.values()))


def _type(name: str, value: ast.expr) -> str:
    kind = name.removeprefix("torch.")
    if kind not in TYPES:
        raise NotConvertible(f"{ast.unparse(value)[:40]} of the type {kind or 'unknown'}")
    return TYPES[kind]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """An instance of a kernel in a program.

    Attributes:
        kernel: its name in C++.
        before: statements that choose sizes for it.
        parameters: of the template, expressions.
        threads: of a block, an expression.
        arguments: of the launch.
        shared: bytes of dynamic shared memory, an expression; empty for none.
    """

    kernel: str
    before: tuple[str, ...]
    parameters: tuple[str, ...]
    threads: str
    arguments: tuple[str, ...]
    shared: str = ""

    @property
    def named(self) -> str:
        """The instance, with fields of a format string."""
        fields = [each if each.isdigit() else f"{{{each}}}" for each in self.parameters]
        return f"{self.kernel}<{', '.join(fields)}>"


def _instance(launch: _Launch, kernel: CudaKernel | str) -> _Compiled:
    if isinstance(kernel, CudaKernel):
        return _of_blocks(launch, kernel)
    return _Compiled(
        launch.kernel,
        (),
        tuple(nvrtc_product.template(launch.options, launch.arguments)),
        f"32 * {ast.unparse(launch.options['num_warps'])}",
        tuple(nvrtc_product.arguments(launch.arguments)),
        nvrtc_product.shared_memory(launch.options),
    )


def _of_blocks(launch: _Launch, kernel: CudaKernel) -> _Compiled:
    rows, columns = (_option(launch, name) for name in kernel.block[:2])
    warps = ast.unparse(launch.options["num_warps"])
    lanes = f"{launch.kernel.removesuffix('_kernel').upper()}_LANES"
    values = [lanes if name == "LANES" else _option(launch, name) for name in kernel.parameters]
    return _Compiled(
        launch.kernel,
        (f"{lanes} = {_lanes(rows, columns, warps)}  # threads of a row",),
        tuple(values),
        lanes if rows == "1" else f"{rows} * {lanes}",
        tuple(map(ast.unparse, launch.arguments)),
    )


def _lanes(rows: str, columns: str, warps: str) -> str:
    """As many threads as in Triton, or so many that none has more than a few elements."""
    of_all = "" if rows == "1" else f" // {rows}"
    enough = f"{columns} // {_MAX_EACH}"
    return f"min({columns}, {_MAX_THREADS}{of_all}, max(1, 32 * {warps}{of_all}, {enough}))"


def _option(launch: _Launch, name: str) -> str:
    """The value of a parameter in a launch; a number is its own."""
    return ast.unparse(launch.options[name]) if name in launch.options else name


# --- text -----------------------------------------------------------------------------------------


def _with_launches(
    source: str, launches: list[_Launch], made: Mapping[int, tuple[str, _Compiled]]
) -> str:
    """The source with launches of instances, which have names of their own."""
    lines = source.splitlines()
    for launch in sorted(launches, key=lambda one: -one.node.lineno):
        start, end = launch.node.lineno - 1, launch.node.end_lineno
        indent = " " * launch.node.col_offset
        new = _launch_text(launch, *made[launch.node.lineno]).splitlines()
        lines[start:end] = [f"{indent}{line}" for line in new]
    return "\n".join(lines) + "\n"


def _launch_text(launch: _Launch, name: str, instance: _Compiled) -> str:
    counts = launch.grid.elts if isinstance(launch.grid, ast.Tuple) else [launch.grid]
    numbers = [_count(each) for each in counts] + ["1"] * (3 - len(counts))
    arguments = [
        f"grid=({', '.join(numbers)})",
        f"block=({instance.threads}, 1, 1)",
        f"args=[{', '.join(instance.arguments)}]",
        *([f"shared_mem={_bytes(name)}"] if instance.shared else []),
    ]
    return call_text(f"{name}(", arguments, _WIDTH)


def _bytes(name: str) -> str:
    return f"{name.upper()}_BYTES"


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


def _named(
    launches: list[_Launch], kernels: Mapping[str, CudaKernel | str]
) -> dict[int, tuple[str, _Compiled]]:
    """Instances with the names of their objects, by lines of launches; equal ones share one."""
    found: dict[int, tuple[str, _Compiled]] = {}
    names: dict[str, str] = {}
    for launch in launches:
        instance = _instance(launch, kernels[launch.kernel])
        if instance.named not in names:
            number = sum(name.startswith(f"{launch.kernel}<") for name in names) + 1
            names[instance.named] = launch.kernel + (f"_{number}" if number > 1 else "")
        found[launch.node.lineno] = names[instance.named], instance
    return found


def _with_text(
    source: str,
    kernels: Mapping[str, CudaKernel | str],
    made: Mapping[int, tuple[str, _Compiled]],
) -> str:
    """The source with C++ and its compilation in the place of functions of Triton."""
    paragraphs = source.rstrip("\n").split(_PARAGRAPH)
    kept = [_without_imports(part) for part in paragraphs if "@triton.jit" not in part]
    texts = [each.text if isinstance(each, CudaKernel) else each for each in kernels.values()]
    text = f'{_TEXT} = r"""\n{with_library(_PARAGRAPH.join(texts))}\n"""'
    compiled = dict.fromkeys(line for pair in made.values() for line in _compilation(*pair))
    place = next(at for at, part in enumerate(kept) if "\nTUNABLE = {" in part) + 1
    return _PARAGRAPH.join([*kept[:place], text, "\n".join(compiled), *kept[place:]]) + "\n"


def _without_imports(part: str) -> str:
    return "\n".join(line for line in part.splitlines() if not line.startswith(_NOT_NEEDED))


def _compilation(name: str, instance: _Compiled) -> Iterator[str]:
    yield from instance.before
    yield call_text(f"{name} = {_COMPILER}(", [_TEXT, f'f"{instance.named}"'], MAX_LINE)
    if instance.shared:
        yield f"{_bytes(name)} = {instance.shared}"
        yield f"{name}.set_shared_memory_config({_bytes(name)})"


NVRTC = Port("nvrtc", nvrtc_product.products, rewritten, products_on=range(8, 100))
