"""The function that launches, as the body of `forward`."""

import ast
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from operators.local.inductor.kernels import Kernel
from operators.local.inductor.layout import MAX_LINE, call_text, launch_text
from operators.local.inductor.reading import NotConvertible, OutputCode, Statement
from operators.local.inductor.sizes import Sizes

_EMPTY = re.compile(r"^empty_strided_(cuda|cpu|xpu)$")
_DROPPED = ("assert_size_stride", "assert_alignment", "args.clear", "torch.cuda.set_device")
_STREAMS = ("get_raw_stream",)
_WIDTH = MAX_LINE - 8  # of lines of a method
# Vendors' kernels that Inductor calls by these names, all of them functions of torch.
_EXTERNAL = frozenset(("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm", "_int_mm"))

_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of a kernel: its Inductor name, and its arguments in order."""

    kernel: str
    arguments: tuple[ast.expr, ...]


def launches(code: OutputCode) -> Iterator[Launch]:
    """All calls of Triton kernels, in order."""
    for statement in code.statements:
        if (found := launch_of(statement.node)) is not None:
            yield found


def cpp_calls(code: OutputCode) -> Iterator[tuple[str, tuple[ast.expr, ...]]]:
    """C++ kernels that are called once, with their arguments."""
    found: dict[str, list[tuple[ast.expr, ...]]] = {}
    for statement in code.statements:
        match statement.node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=arguments)):
                if name in code.cpp:
                    found.setdefault(name, []).append(tuple(arguments))
    for name, calls in found.items():
        if len(calls) == 1:
            yield name, calls[0]


def launch_of(node: ast.stmt) -> Launch | None:
    """The launch that a statement is; None if it is none."""
    match node:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="run"), args=arguments)
        ):
            return Launch(name, tuple(arguments))
    return None


class Body:
    """Writes the lines of `forward`.

    Args:
        kernels: by their Inductor names.
        functions: the replacement of each C++ kernel, by its Inductor name.
        expressions: the replacement of each argument of the output code, e.g. `self.weight`.
        sizes: gives names to those of launches.
        device: an expression for where buffers are made.
    """

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        functions: Mapping[str, str],
        expressions: Mapping[str, str],
        sizes: Sizes,
        device: str,
    ) -> None:
        self._kernels = kernels
        self._by_name = {kernel.name: kernel for kernel in kernels.values()}
        self._sizes = sizes
        self._functions = functions
        self._rewriter = _Expressions(expressions, device)
        self._inputs = frozenset(expressions)
        self._names: dict[str, set[str]] = {}  # of a buffer, that are in use

    def lines(self, statements: Sequence[Statement]) -> tuple[list[str], list[str]]:
        """The lines, and the expressions that the output code returns.

        Raises:
            NotConvertible: something that only Inductor's run time has.
        """
        found: list[str] = []
        for statement in statements:
            node = statement.node
            if isinstance(node, ast.Return):
                return found, self._returned(node)
            new = list(self._written(node))
            if new and statement.operations:
                found.append(f"# {', '.join(statement.operations)}")
            found += new
        raise NotConvertible("the output code returns nothing")

    def _written(self, node: ast.stmt) -> Iterator[str]:
        if (launch := launch_of(node)) is not None:
            yield self._launched(launch)
            return
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=values)) if (
                name in self._functions
            ):
                passed = [ast.unparse(self._rewriter.written(value)) for value in values]
                yield call_text(f"{self._functions[name]}(", passed, _WIDTH)
                return
            case ast.Expr(value=ast.Call(func=ast.Subscript() as launched) as call):
                passed = [ast.unparse(self._rewriter.written(value)) for value in call.args]
                options = {str(option.arg): option.value for option in call.keywords}
                kernel = self._by_name[ast.unparse(launched.value)]
                yield self._launch_text(kernel, launched.slice, passed, options)
                return
            case ast.Expr(value=ast.Call(func=function)) if ast.unparse(function) in _DROPPED:
                return
            case ast.Assign(value=ast.Call(func=function)) if ast.unparse(function) in _STREAMS:
                return
            case ast.Assign(
                targets=[ast.Name(id=new)],
                value=ast.Call(func=ast.Name(id="copy_if_misaligned"), args=[ast.Name(id=old)]),
            ) if new == old:
                return  # Triton inspects the alignment of its arguments
            case ast.Assign(targets=[ast.Name(id=new)], value=ast.Name(id=old)):
                root = self._root(old)
                self._rewriter.renamed[new] = root
                self._names.setdefault(root, {old}).add(new)
                return
            case ast.Delete(targets=targets):
                gone = [root for name in map(ast.unparse, targets) if (root := self._freed(name))]
                if gone:
                    yield f"del {', '.join(gone)}"
                return
        yield _text(self._rewriter.written(node))

    def _root(self, name: str) -> str:
        """The program's name for it."""
        return self._rewriter.renamed.get(name, name)

    def _freed(self, name: str) -> str:
        """The buffer that is freed as its last name goes; empty if it stays."""
        root = self._root(name)
        left = self._names.setdefault(root, {name})
        left.discard(name)
        return "" if left or root in self._inputs else root

    def _launched(self, launch: Launch) -> str:
        kernel = self._kernels[launch.kernel]
        arguments = [
            ast.unparse(self._rewriter.written(launch.arguments[at])) for at in kernel.positions
        ]
        options = {name: _expression(constant) for name, constant in kernel.launch.items()}
        return self._launch_text(kernel, _expression(kernel.grid), arguments, options)

    def _launch_text(
        self,
        kernel: Kernel,
        grid: ast.expr,
        arguments: Sequence[str],
        options: Mapping[str, ast.expr],
    ) -> str:
        grid, options = self._sizes.named(kernel, grid, options)
        given = [f"{name}={ast.unparse(value)}" for name, value in options.items()]
        return launch_text(kernel.name, grid, [*arguments, *given], _WIDTH)

    def _returned(self, node: ast.Return) -> list[str]:
        if not isinstance(node.value, ast.Tuple):
            raise NotConvertible("the output code does not return a tuple")
        return [ast.unparse(self._rewriter.written(value)) for value in node.value.elts]


class _Expressions(ast.NodeTransformer):
    """Functions of Inductor's run time as functions of torch."""

    def __init__(self, expressions: Mapping[str, str], device: str) -> None:
        self._expressions = expressions
        self._device = device
        self.renamed: dict[str, str] = {}

    def written(self, node: _Node) -> _Node:
        """A copy; the node is also that of other programs that are made of the same code."""
        written: _Node = self.visit(copy.deepcopy(node))
        return written

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self.renamed.get(node.id, node.id)
        if name in self._expressions:
            return ast.parse(self._expressions[name], mode="eval").body
        return ast.Name(name, node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        self.generic_visit(node)
        if _EMPTY.match(name):
            return self._empty(*node.args)
        if name == "reinterpret_tensor":
            return _view(*node.args)
        if name.startswith("extern_kernels."):
            function = name.partition(".")[2]
            if function not in _EXTERNAL:
                raise NotConvertible(f"a call of {name}")
            node.func = _expression(f"torch.{function}")
        elif name.startswith("aten."):  # a name that the output code gives it
            node.func = _expression(f"torch.ops.{name}")
        elif not name.startswith("torch.") and "." not in name:
            raise NotConvertible(f"a call of {name}")
        return node

    def _empty(self, size: ast.expr, stride: ast.expr, dtype: ast.expr) -> ast.expr:
        place = f"device={self._device}, dtype={ast.unparse(dtype)}"
        shape, steps = ast.literal_eval(size), ast.literal_eval(stride)
        if steps == contiguous(shape):
            return _expression(f"torch.empty({shape}, {place})")
        return _expression(f"torch.empty_strided({shape}, {steps}, {place})")


def _text(node: ast.stmt) -> str:
    """A statement; a call whose value gets a name, with its arguments on several lines."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
            arguments = [*map(ast.unparse, call.args), *map(ast.unparse, call.keywords)]
            return call_text(f"{name} = {ast.unparse(call.func)}(", arguments, _WIDTH)
    return ast.unparse(node)


def _view(tensor: ast.expr, size: ast.expr, stride: ast.expr, offset: ast.expr) -> ast.expr:
    """Inductor counts the offset from the tensor's first element, torch from the storage's."""
    text = ast.unparse(tensor)
    place = ""
    if ast.unparse(offset) != "0":
        place = f", {text}.storage_offset() + {ast.unparse(offset)}"
    return _expression(f"{text}.as_strided({ast.unparse(size)}, {ast.unparse(stride)}{place})")


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor that lies row by row, as Inductor counts them."""
    steps: list[int] = []
    step = 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
