"""Reading Inductor's output code: kernels, and the function that launches them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_ATEN = re.compile(r"Original ATen: \[(.*?)\]")
_CONTEXT_MANAGERS = ("_DeviceGuard", "device")


class NotConvertible(Exception):
    """The output code has a construct that our programs cannot have; the message names it."""


@dataclass(frozen=True, slots=True, eq=False)
class RawKernel:
    """A Triton kernel as Inductor wrote it; each is equal to itself alone.

    Attributes:
        function: its definition, decorators included.
        helpers: functions of its own that it calls.
        heuristic: how Inductor would choose its blocks, e.g. `pointwise`.
        settings: the arguments of that, as far as they are literals, `inductor_meta` included.
        operations: of ATen that it computes.
    """

    function: ast.FunctionDef
    helpers: tuple[ast.FunctionDef, ...]
    heuristic: str
    settings: dict[str, object]
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RawCpp:
    """A C++ kernel as Inductor wrote it: a function `kernel` behind torch's prefix."""

    code: str
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the function that launches, with the operations it is for."""

    node: ast.stmt
    operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputCode:
    """Output code, read."""

    kernels: dict[str, RawKernel] = field(default_factory=dict)
    cpp: dict[str, RawCpp] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()


@lru_cache(maxsize=16)  # several programs are made of the same code; its nodes are never changed
def read(code: str) -> OutputCode:
    """Take output code apart.

    Raises:
        NotConvertible: Inductor of torch 2.11 to 2.15 does not write such code.
    """
    try:
        module = ast.parse(code)
    except SyntaxError as error:
        raise NotConvertible(f"the output code is not Python: {error}") from error
    comments = _operations_by_line(code)
    found = dict(_kernels(module, comments))
    kernels = {name: raw for name, raw in found.items() if isinstance(raw, RawKernel)}
    cpp = {name: raw for name, raw in found.items() if isinstance(raw, RawCpp)}
    call = next(
        (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == "call"), None
    )
    if call is None:
        raise NotConvertible("the output code has no function `call`")
    arguments, body = _arguments(call)
    statements = tuple(_flattened(body, comments))
    return OutputCode(kernels, cpp, arguments, statements)


def _operations_by_line(code: str) -> dict[int, tuple[str, ...]]:
    """By the number of the first line of code after a comment that names operations."""
    found: dict[int, tuple[str, ...]] = {}
    pending: tuple[str, ...] = ()
    for number, line in enumerate(code.splitlines(), 1):
        text = line.strip()
        if match := _ATEN.search(text):
            names = [name.strip().removeprefix("aten.") for name in match[1].split(",")]
            pending = tuple(name for name in names if name)
        elif pending and text and not text.startswith(("#", "raw_stream", "stream")):
            found[number] = pending
            pending = ()
    return found


def _kernels(
    module: ast.Module, comments: dict[int, tuple[str, ...]]
) -> Iterator[tuple[str, RawKernel | RawCpp]]:
    for node in module.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        called = ast.unparse(node.value.func)
        if not called.startswith("async_compile."):
            continue
        operations = comments.get(node.lineno, ())
        name = ast.unparse(node.targets[0])
        text = ast.literal_eval(node.value.args[1])
        if called == "async_compile.triton":
            yield name, _kernel(name, text, operations)
        elif called == "async_compile.cpp_pybinding":
            yield name, RawCpp(text, operations)
        else:
            raise NotConvertible(f"kernels of {called.removeprefix('async_compile.')}")


def _kernel(name: str, text: str, operations: tuple[str, ...]) -> RawKernel:
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    function = next((f for f in functions if f.name == name), None)
    if function is None:
        raise NotConvertible(f"kernel {name} has no function of its name")
    decorators = [d for d in function.decorator_list if isinstance(d, ast.Call)]
    if len(decorators) != 1:
        raise NotConvertible(f"kernel {name} is not compiled by one heuristic")
    helpers = tuple(f for f in functions if f is not function)
    heuristic = ast.unparse(decorators[0].func).rpartition(".")[2]
    settings = {key.arg: _literal(key.value) for key in decorators[0].keywords if key.arg}
    return RawKernel(function, helpers, heuristic, settings, operations)


def _literal(node: ast.expr) -> object:
    """A literal's value; for anything else, e.g. an enum's member, its text."""
    if isinstance(node, ast.Dict):
        return {
            ast.literal_eval(key): _literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _arguments(call: ast.FunctionDef) -> tuple[tuple[str, ...], list[ast.stmt]]:
    """Names of the tensors that `call` takes, and its body after that."""
    for at, node in enumerate(call.body):
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "args":
            (target,) = node.targets
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            return tuple(ast.unparse(name) for name in names), call.body[at + 1 :]
    return (), call.body


def _flattened(body: list[ast.stmt], comments: dict[int, tuple[str, ...]]) -> Iterator[Statement]:
    """Statements in order, those in a `with` of the device too."""
    for node in body:
        if isinstance(node, ast.With):
            manager = ast.unparse(node.items[0].context_expr)
            if not any(known in manager for known in _CONTEXT_MANAGERS):
                raise NotConvertible(f"`with {manager}`")
            yield from _flattened(node.body, comments)
        else:
            operations = comments.get(node.lineno, ())
            yield from (Statement(one, operations) for one in _with_plain_checks(node))


def _with_plain_checks(node: ast.stmt) -> list[ast.stmt]:
    """Checks of shapes as `assert_size_stride`, from which shapes of results are known.

    Inductor of torch 2.15 checks several tensors in one call, and the dtypes of results as well.
    """
    match node:
        case ast.Expr(
            value=ast.Call(
                func=ast.Name(id="assert_size_stride_grouped"),
                args=[
                    ast.Tuple(elts=names),
                    ast.Tuple(elts=sizes),
                    ast.Tuple(elts=strides),
                    *about,
                ],
            )
        ):
            grouped = zip(names, sizes, strides, strict=True)
            return [_plain_check([name, size, step, *about]) for name, size, step in grouped]
        case ast.Expr(
            value=ast.Call(
                func=ast.Name(id="assert_tensor_metadata"), args=[name, size, stride, _, *about]
            )
        ):
            return [_plain_check([name, size, stride, *about])]
    return [node]


def _plain_check(arguments: list[ast.expr]) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name("assert_size_stride", ast.Load()), arguments, []))
