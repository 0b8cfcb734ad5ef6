"""A Triton program taken apart: its kernels, where they are launched, its tunables."""

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from evolve.core.program import TunableValue
from evolve.core.source.pytext import Edit, Module, apply, read
from evolve.core.source.tunable_sites import DECLARATION, declaration
from operators.local.inductor.layout import MAX_LINE, call_text, launch_text
from operators.local.inductor.names import free_name
from operators.local.structure.writing import function_text


class NotApplicable(Exception):
    """The rewrite cannot be made of this kernel; the message says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A statement `kernel[grid](...)`, and the block of statements that it stands in."""

    statement: ast.Expr
    call: ast.Call
    grid: ast.expr
    block: list[ast.stmt]

    @property
    def counts(self) -> list[ast.expr]:
        """Numbers of programs by axis.

        Raises:
            NotApplicable: the grid is a name or a function, which may hold any number of axes.
        """
        if not isinstance(self.grid, ast.Tuple):
            raise NotApplicable("its grid is not written as a tuple")
        return self.grid.elts

    def option(self, name: str) -> ast.expr | None:
        """The argument of that name."""
        return next((k.value for k in self.call.keywords if k.arg == name), None)


@dataclass(frozen=True, slots=True)
class Choices:
    """A tunable to be declared: the value to begin with, and all of them."""

    first: TunableValue
    values: tuple[TunableValue, ...]


class TritonProgram:
    """The source of a program.

    Args:
        source: its text.
        multiprocessors: of the device that it is for.

    Raises:
        UsageError: the text is not valid Python, or declares its tunables wrongly.
    """

    def __init__(self, source: str, multiprocessors: int = 132) -> None:
        self.module: Module = read(source)
        self.multiprocessors = multiprocessors

    @cached_property
    def kernels(self) -> Mapping[str, ast.FunctionDef]:
        """Functions under `@triton.jit` that are launched, in order."""
        launched = {launch_name(node) for node in ast.walk(self.module.tree)}
        return {
            node.name: node
            for node in self.module.tree.body
            if isinstance(node, ast.FunctionDef)
            and [ast.unparse(d) for d in node.decorator_list] == ["triton.jit"]
            and node.name in launched
        }

    def kernel(self, name: str) -> ast.FunctionDef:
        """A copy of a kernel's definition, to be changed."""
        return copy.deepcopy(self.kernels[name])

    def launches(self, kernel: str) -> list[Launch]:
        """All places that launch a kernel.

        Raises:
            NotApplicable: it is used in another way than in statements `kernel[grid](...)`.
        """
        found = [launch for launch in self._launches if launch_name(launch.call) == kernel]
        uses = sum(
            isinstance(node, ast.Name) and node.id == kernel for node in ast.walk(self.module.tree)
        )
        if uses != len(found):
            raise NotApplicable(f"{kernel} is not only launched")
        return found

    @property
    def all_launches(self) -> list[tuple[str, Launch]]:
        """Every statement `kernel[grid](...)`, with the kernel's name."""
        return [(launch_name(launch.call), launch) for launch in self._launches]

    @cached_property
    def _launches(self) -> list[Launch]:
        found = []
        for block in _blocks(self.module.tree):
            for statement in block:
                match statement:
                    case ast.Expr(value=ast.Call(func=ast.Subscript(slice=grid)) as call):
                        found.append(Launch(statement, call, grid, block))
        return found

    def free(self, wanted: str) -> str:
        """The name, or it with a number, that nothing in the program has."""
        return free_name(wanted, self._names)

    @cached_property
    def _names(self) -> frozenset[str]:
        tree = self.module.tree
        return frozenset(
            name
            for node in ast.walk(tree)
            for name in (getattr(node, "id", None), getattr(node, "name", None),
                         getattr(node, "arg", None))
            if isinstance(name, str)
        )  # fmt: skip

    @cached_property
    def choices(self) -> Mapping[str, tuple[TunableValue, ...]]:
        """Of the declared tunables, by name."""
        found = declaration(self.module)
        return found.choices if found else {}

    # --- writing ----------------------------------------------------------------------------------

    def replaced_kernel(self, new: ast.FunctionDef) -> Edit:
        """An edit that puts a definition in the place of the kernel of its name."""
        return self.replaced_definition(new.name, new)

    def replaced_definition(self, name: str, new: ast.FunctionDef) -> Edit:
        """An edit that puts a definition, perhaps of another name, in the place of a kernel."""
        span = self.module.definition_span(self.kernels[name])
        return Edit(*span, function_text(new, self.module.source))

    def replaced_call(self, launch: Launch, new: ast.Call) -> Edit:
        """An edit that puts another call in the place of a launch."""
        start, end = self.module.span(launch.call)
        indent = launch.statement.col_offset
        return Edit(start, end, _call_text(new, indent))

    def is_only_in(self, name: str, nodes: Iterable[ast.AST]) -> bool:
        """Whether nothing but these nodes reads a name."""
        inside = sum(_reads(node, name) for node in nodes)
        return inside == _reads(self.module.tree, name)

    def without_definition(self, function: ast.FunctionDef) -> Edit:
        """An edit that takes a function away, with its decorators and the comment above."""
        start, end = self.module.definition_span(function)
        start, end = self._with_comment(start, end)
        rest = self.module.source[end:]
        return Edit(start, end + len(rest) - len(rest.lstrip("\n")), "")

    def without(self, statement: ast.stmt) -> Edit:
        """An edit that takes a statement away, with its lines and the comment above."""
        return Edit(*self._with_comment(*self.module.span(statement)), "")

    def _with_comment(self, start: int, end: int) -> tuple[int, int]:
        """A span widened to whole lines, and to a comment on the line above."""
        text = self.module.source
        start = text.rfind("\n", 0, start) + 1
        end = text.find("\n", end) + 1 or len(text)
        above = text.rfind("\n", 0, max(start - 1, 0)) + 1
        return (above if text[above:start].lstrip().startswith("#") else start), end

    def written(
        self,
        edits: Iterable[Edit],
        declared: Mapping[str, Choices],
        dropped: Iterable[str] = (),
    ) -> str:
        """The source with edits made, and tunables declared, changed and dropped."""
        found, gone = declaration(self.module), set(dropped)
        choices = {name: values for name, values in self.choices.items() if name not in gone}
        choices |= {name: choice.values for name, choice in declared.items()}
        constants = self._constants()
        made = list(edits)
        for name, statement in constants.items():
            if name in gone:
                made.append(self.without(statement))
            elif name in declared:
                made.append(_replaced(self.module, statement, f"{name} = {declared[name].first!r}"))
        new = [f"{n} = {c.first!r}" for n, c in declared.items() if n not in constants]
        lines = [*new, f"{DECLARATION} = {{"]
        lines += [
            f'    "{name}": {values!r},' for name, values in choices.items() if len(values) > 1
        ]
        text = "\n".join([*lines, "}"])
        if found:
            made.append(_replaced(self.module, found.statement, text))
        else:
            made.append(Edit(*2 * (self._after_imports(),), f"\n\n{text}\n"))
        return apply(self.module.source, made)

    def _constants(self) -> dict[str, ast.stmt]:
        found: dict[str, ast.stmt] = {}
        for node in self.module.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)]):
                    found[name] = node
        return found

    def _after_imports(self) -> int:
        imports = [n for n in self.module.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        return self.module.span(imports[-1])[1] if imports else 0


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """All statements, as lists of those that stand one after the other."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):  # and not the value of `a if b else c`
                yield block


def launch_name(node: ast.AST) -> str:
    """`kernel` of a call `kernel[grid](...)`; empty for anything else."""
    match node:
        case ast.Call(func=ast.Subscript(value=ast.Name(id=name))):
            return name
    return ""


def parameters(function: ast.FunctionDef) -> list[str]:
    """Names of a function's parameters."""
    return [argument.arg for argument in function.args.args]


def passed(function: ast.FunctionDef, launch: Launch) -> dict[str, ast.expr]:
    """The argument for each parameter of a kernel."""
    given = dict(zip(parameters(function), launch.call.args, strict=False))
    return given | {k.arg: k.value for k in launch.call.keywords if k.arg in parameters(function)}


def calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Calls with the called name, as text: `tl.load`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            yield ast.unparse(part.func), part


def names(node: ast.AST) -> set[str]:
    """Names that are read, those of `name += ...` too."""
    found = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Load()) | ast.AugAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def assigned(node: ast.AST) -> tuple[str, ast.expr] | None:
    """The name and the value of `name = value` or `name += value`; None of anything else."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
            return name, ast.BinOp(ast.Name(name, ast.Load()), op, value)
    return None


def stored(nodes: Iterable[ast.AST]) -> list[str]:
    """Names that are assigned, each as often as it is."""
    return [
        part.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    ]


def _reads(node: ast.AST, name: str) -> int:
    """How often a name of the module is read; a parameter of that name is something else."""
    if isinstance(node, ast.FunctionDef) and name in parameters(node):
        return 0
    own = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    return own + sum(_reads(child, name) for child in ast.iter_child_nodes(node))


def parse(text: str) -> ast.stmt:
    """The one statement of a text."""
    (statement,) = ast.parse(text).body
    return statement


def _replaced(module: Module, statement: ast.stmt, text: str) -> Edit:
    return Edit(*module.span(statement), text)


def _call_text(call: ast.Call, indent: int) -> str:
    """A call at so many columns, with its later lines beneath the first."""
    arguments = [*map(ast.unparse, call.args), *map(ast.unparse, call.keywords)]
    width = MAX_LINE - indent
    if isinstance(call.func, ast.Subscript):
        text = launch_text(ast.unparse(call.func.value), call.func.slice, arguments, width)
    else:
        text = call_text(f"{ast.unparse(call.func)}(", arguments, width)
    return text.replace("\n", "\n" + " " * indent)
