"""A kernel of the compiler, which is Triton, as code for each element of its block.

A block has one axis, or rows and columns. A name of the kernel is one number for all, a number for
each row, or one for each element; the languages write these in their own ways.
"""

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from operators.local.inductor import NotConvertible
from operators.local.ports.blocks import axis_of, lie_in_rows, names_in, sizes_of

ROW, WHOLE = 1, 2

TUPLES: Mapping[str, int] = {
    "online_softmax_combine": 2,
    "online_softmax_combine_with_sum": 2,
    "welford_combine": 3,
    "welford_reduce": 3,
}
"""Functions of several values for each element, and how many they give."""

HALVES = ("float16", "bfloat16")
"""Types that are read as float32 and computed with as such."""

OPERATORS: Mapping[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.USub: "-",
}
"""Those that Python and C++ write alike."""

JOINED: Mapping[str, int] = {"online_softmax_reduce": 2, "welford": 3}
"""Functions that reduce several values of each element together."""

_WIDTHS = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64")
_NO_CHANGE = ("max_contiguous", "multiple_of")
_SAME_KIND = frozenset({"abs", "maximum", "minimum"})


class Text(NamedTuple):
    """Code of an expression.

    Attributes:
        text: the code.
        rank: 0 if all elements share its value, `ROW` if those of a row do, else `WHOLE`.
        kind: its type, by the name that torch has for it.
        is_index: whether it follows from places and sizes alone, without memory.
    """

    text: str
    rank: int = 0
    kind: str = "int32"
    is_index: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether each element has a value of its own."""
        return self.rank == WHOLE


class Block(NamedTuple):
    """A kernel's block: how many rows, and elements of each; numbers, or parameters' names."""

    rows: str
    columns: str
    in_rows: bool


class ElementKernel(ABC):
    """A kernel, of which a subclass writes the expressions and statements.

    Args:
        function: the kernel in Triton.
        kinds: types as torch names them, by parameter that is a pointer.

    Attributes:
        name: of the kernel.
        block: its block; rows are `1` if there is one axis.
        kinds: as given.
        pointers: its parameters that are pointers, in order.
        constants: its other parameters, in order.
        numbers: constants that it defines itself, by name.
        written: pointers to which it stores.
        carried: names that a loop takes over and changes.
        axes: of the block.
        before: lines that go before those of the statement that is being written.

    Raises:
        NotConvertible: it has something that is not known here.
    """

    taken: ClassVar[frozenset[str]] = frozenset()
    operators: ClassVar[Mapping[type, str]] = {}
    functions: ClassVar[Mapping[str, str]] = {}
    reductions: ClassVar[Mapping[str, str]] = {}
    divided: ClassVar[str] = ""
    chosen: ClassVar[str] = ""

    def __init__(self, function: ast.FunctionDef, kinds: Mapping[str, str]) -> None:
        sizes = sizes_of(function)
        if not sizes:
            raise NotConvertible(f"{function.name} has no blocks of its own")
        if taken := names_in(function) & self.taken:
            raise NotConvertible(f"{function.name} has the name {min(taken)}")
        in_rows = len(sizes) == 1 or lie_in_rows(function)
        self.name = function.name
        self.numbers = {name: value for node in function.body for name, value in _constant(node)}
        rows, columns = ("1", *(str(self.numbers.get(size, size)) for size in sizes))[-2:]
        self.block = Block(rows, columns, in_rows)
        arguments = [argument.arg for argument in function.args.args]
        self.pointers = [name for name in arguments if name in kinds]
        self.constants = [name for name in arguments if name not in kinds]
        self.written = _written(function)
        self.carried = frozenset(_carried(function.body))
        self.kinds = kinds
        self.axes = len(sizes)
        self.before: list[str] = []
        self._known: dict[str, Text] = {
            name: Text(name, is_index=True) for name in (*self.numbers, *self.constants)
        }

    # --- statements, of which a language has its own forms ----------------------------------------

    @abstractmethod
    def literal(self, value: object) -> str:
        """A constant. Raises `NotConvertible` if it has none of the type."""

    @abstractmethod
    def cast(self, kind: str, text: str) -> str:
        """A value of another type. Raises `NotConvertible` if there is none of it."""

    @abstractmethod
    def place(self, *, is_last: bool) -> str:
        """An element's place along the last axis, or along the first of two."""

    @abstractmethod
    def program(self, axis: int) -> str:
        """Which of the launch's blocks it is."""

    @abstractmethod
    def load(self, pointer: str, at: Text, inside: Text, other: Text) -> str:
        """An element of memory, or `other` where `inside` is false."""

    @abstractmethod
    def store(self, pointer: str, at: Text, value: Text, inside: Text) -> list[str]:
        """Lines that store each element of a block where `inside` is true; one, if all share it."""

    @abstractmethod
    def assign(self, name: str, value: Text) -> tuple[list[str], Text]:
        """Lines that give a value a name, and how it is read from then on."""

    @abstractmethod
    def loop(self, name: str, limits: list[str], inner: list[str]) -> list[str]:
        """A loop over statements; limits are its start, end and step."""

    @abstractmethod
    def reduced(self, value: Text, join: str) -> Text:
        """One value for each row."""

    @abstractmethod
    def unpacked(self, function: str, names: list[str], given: list[Text]) -> list[str]:
        """Lines of a call in `TUPLES` or `JOINED`."""

    def same(self, kind: str, *given: Text) -> list[Text]:
        """Values of one type, if a language does not make them so itself."""
        return list(given)

    def loop_name(self, name: str, limits: list[str]) -> str:
        """How the variable of a loop is read."""
        return name

    def call(self, name: str, kind: str, *given: str) -> str:
        """A call of one of `functions`."""
        text = self.functions[name]
        return text.format(*given) if "{" in text else f"{text}({', '.join(given)})"

    def full(self, value: str, kind: str, rank: int) -> str:
        """A block of one value."""
        return self.cast(kind, value)

    def spread(self, text: str) -> str:
        """A value for all elements of the block."""
        return text

    # --- the walk ---------------------------------------------------------------------------------

    def lines(self, body: list[ast.stmt]) -> list[str]:
        """Of statements other than constants."""
        return [line for node in body if not _constant(node) for line in self._lines(node)]

    def _lines(self, node: ast.stmt) -> list[str]:
        made = self._statement(node)
        return [*self._taken_before(), *made]

    def _taken_before(self) -> list[str]:
        before, self.before = self.before, []
        return before

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Expr(value=ast.Constant()):
                return []
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="device_assert"))):
                return []
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(attr="store"), args=[to, value, *rest])
            ):
                return self._store(to, value, rest[0] if rest else None)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=[first, last, step])):
                limits = [self.number(each) for each in (first, last, step)]
                before = dict(self._known)
                self._known[name] = Text(self.loop_name(name, limits), is_index=True)
                inner = [line for each in node.body for line in self._lines(each)]
                self._known = before
                return self.loop(name, limits, inner)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self.assigned(name, self._of(value))
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=ast.Call() as call):
                return self._unpacked([ast.unparse(each) for each in elements], call)
        raise NotConvertible(f"the statement {ast.unparse(node)[:60]}")

    def assigned(self, name: str, value: Text) -> list[str]:
        """Lines that give a value a name."""
        known = self._known.get(name)
        if known is not None and value.text == known.text:  # `x = x[:, None]`
            return []
        lines, self._known[name] = self.assign(name, value)
        return [*self._taken_before(), *lines]

    def named(self, name: str) -> Text:
        """How a name is read."""
        return self._known[name]

    def is_known(self, name: str) -> bool:
        """Whether a name has had a value before."""
        return name in self._known

    def is_whole(self, name: str) -> bool:
        """Whether it is a name of the kernel that has a value for each element."""
        return name in self._known and self._known[name].is_whole

    def _unpacked(self, names: list[str], call: ast.Call) -> list[str]:
        function = ast.unparse(call.func)
        if function not in TUPLES and function not in JOINED:
            raise NotConvertible(f"several values of {function}")
        given = call.args[:-1] if function in JOINED else call.args
        return self.unpacked(function, names, [self._of(each) for each in given])

    def _store(self, to: ast.expr, value: ast.expr, mask: ast.expr | None) -> list[str]:
        pointer, at = self._address(to)
        inside, what = self._mask(mask), self._of(value)
        for_each = at.is_whole or (what.is_whole and self.axes == 1)
        if not for_each and (what.is_whole or inside.is_whole):
            raise NotConvertible(f"elements stored at {ast.unparse(to)[:60]}")
        return self.store(pointer, at._replace(rank=WHOLE) if for_each else at, what, inside)

    def _address(self, node: ast.expr) -> tuple[str, Text]:
        match node:
            case ast.Name(id=name):
                return name, Text("0", is_index=True)
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=offset):
                return name, self._of(offset)
        raise NotConvertible(f"the address {ast.unparse(node)[:60]}")

    def _mask(self, node: ast.expr | None) -> Text:
        if node is None or ast.unparse(node) == "None":
            return Text(self.literal(True), kind="bool", is_index=True)
        return self._of(node)

    def number(self, node: ast.expr) -> str:
        """An expression that all elements share."""
        found = self._of(node)
        if found.is_whole:
            raise NotConvertible(f"{ast.unparse(node)[:60]} for every element")
        return found.text

    def _of(self, node: ast.expr) -> Text:
        match node:
            case ast.Constant(value=value):
                return Text(self.literal(value), 0, _kind_of(value), is_index=True)
            case ast.Name(id=name) if name in self._known:
                return self._known[name]
            case ast.BinOp() | ast.Compare() | ast.UnaryOp():
                return self._operation(node)
            case ast.Subscript() if (axis := axis_of(node)) is not None:
                is_last = axis + 1 == self.axes
                return Text(self.place(is_last=is_last), WHOLE if is_last else ROW, is_index=True)
            case ast.Subscript(value=value):
                return self._of(value)
            case ast.Call():
                return self._call(node)
        raise NotConvertible(f"the expression {ast.unparse(node)[:60]}")

    def _operation(self, node: ast.BinOp | ast.Compare | ast.UnaryOp) -> Text:
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined(self.divided, left, right, kind="float32")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in self.operators:
                return self._joined(f"({{}} {self.operators[type(op)]} {{}})", left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if (
                type(op) in self.operators
            ):
                text = f"({{}} {self.operators[type(op)]} {{}})"
                return self._joined(text, left, right, kind="bool")
            case ast.UnaryOp(op=op, operand=operand) if type(op) in self.operators:
                sign = self.operators[type(op)]
                text = f"{sign}({{}})" if sign[-1].isalpha() else f"({sign}{{}})"
                return self._joined(text, operand)
        raise NotConvertible(f"the operation {ast.unparse(node)[:60]}")

    def _joined(self, text: str, *nodes: ast.expr, kind: str = "") -> Text:
        """Code of several expressions; its type is the widest of theirs unless it is given."""
        return joined(text, *(self._of(node) for node in nodes), kind=kind)

    def _call(self, node: ast.Call) -> Text:
        match node.func:
            case ast.Attribute(value=ast.Name(id="tl" | "libdevice"), attr=name):
                return self._function(name, node)
            case ast.Name(id=name):
                return self._function(name, node)
            case ast.Attribute(value=value, attr="to") if not node.keywords:  # no `bitcast`
                kind, found = _kind(node.args[0]), self._of(value)
                return found._replace(text=self.cast(kind, found.text), kind=kind)
            case ast.Attribute(value=made, attr="broadcast_to"):
                return self._of(made)
        raise NotConvertible(f"the call {ast.unparse(node)[:60]}")

    def _function(self, name: str, node: ast.Call) -> Text:
        match name, node.args:
            case "float", [ast.Constant(value=str(value))]:
                return Text(self.literal(float(value)), 0, "float32", is_index=True)
            case "program_id", [ast.Constant(value=int() as axis)]:
                return Text(self.program(axis), is_index=True)
            case "load", [address, *rest]:
                return self._load(address, rest, node.keywords)
            case "where", [condition, left, right]:
                found = [self._of(each) for each in (condition, left, right)]
                kind = widest(*found[1:])
                return joined(self.chosen, found[0], *self.same(kind, *found[1:]), kind=kind)
            case _, [value, ast.Constant()] if name in self.reductions:
                return self.reduced(self._of(value), name)
            case _, [first, *_] if name in _NO_CHANGE:
                return self._of(first)
            case _, [*given] if name in self.functions:
                return self._called(name, [self._of(each) for each in given])
        return self._shaped(name, node)

    def _called(self, name: str, given: list[Text]) -> Text:
        kind = widest(*given) if name in _SAME_KIND else "float32"
        values = self.same(kind, *given)
        places = [f"{{{number}}}" for number in range(len(given))]
        return joined(self.call(name, kind, *places), *values, kind=kind)

    def _shaped(self, name: str, node: ast.Call) -> Text:
        """Of functions that are given a shape."""
        match name, node.args:
            case "broadcast_to", [value, ast.List(elts=sizes)]:
                found = self._of(value)
                return self._spread(found, len(sizes) == self.axes)
            case "broadcast_to", [value, ast.Attribute(value=like, attr="shape")]:
                return self._spread(self._of(value), self._of(like).is_whole)
            case (("full" | "zeros"), [ast.List(elts=sizes), *given]):
                return self._full(sizes, given)
            case "full", [ast.Attribute(value=like, attr="shape"), value, _]:
                other = self._of(like)
                text = self.full(self.number(value), other.kind, other.rank)
                return other._replace(text=text, is_index=True)
        raise NotConvertible(f"the call {ast.unparse(node)[:60]}")

    def _spread(self, value: Text, is_whole: bool) -> Text:
        if not is_whole:
            return value
        return value._replace(text=self.spread(value.text), rank=WHOLE)

    def _load(self, address: ast.expr, rest: list[ast.expr], keywords: list[ast.keyword]) -> Text:
        named = {keyword.arg: keyword.value for keyword in keywords}
        pointer, at = self._address(address)
        inside = self._mask(rest[0] if rest else named.get("mask"))
        other = self._of(named["other"]) if "other" in named else self._of(ast.Constant(0))
        kind = self.kinds[pointer]
        return Text(
            self.load(pointer, at, inside, other),
            max(at.rank, inside.rank, other.rank),
            "float32" if kind in HALVES else kind,
        )

    def _full(self, sizes: list[ast.expr], given: list[ast.expr]) -> Text:
        value, dtype = given if len(given) == 2 else (ast.Constant(0), given[0])
        kind = _kind(dtype)
        is_block = len(sizes) == self.axes and not isinstance(sizes[-1], ast.Constant)
        rank = WHOLE if is_block else 0
        return Text(self.full(self.number(value), kind, rank), rank, kind, is_index=True)


def joined(text: str, *given: Text, kind: str = "") -> Text:
    """Code of several values; its type is the widest of theirs unless it is given."""
    return Text(
        text.format(*(each.text for each in given)),
        max(each.rank for each in given),
        kind or widest(*given),
        all(each.is_index for each in given),
    )


def widest(*given: Text) -> str:
    """The type of a number that may be any of them."""
    return max((each.kind for each in given), key=_WIDTHS.index, default="int32")


def _kind(dtype: ast.expr) -> str:
    """A type of Triton's by the name that torch has for it."""
    name = ast.unparse(dtype).removeprefix("tl.")
    return "bool" if name == "int1" else name


def _kind_of(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int32" if abs(value) < 2**31 else "int64"
    return "float32"


def _written(function: ast.FunctionDef) -> set[str]:
    """Parameters that something is stored to."""
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="store"), args=[address, *_]):
                found |= names_in(address)
    return found


def _carried(body: list[ast.stmt]) -> set[str]:
    """Names with a value before a loop that the loop changes."""
    before: set[str] = set()
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.For):
            found |= before & set().union(*map(_targets, node.body))
        before |= _targets(node)
    return found


def _targets(node: ast.stmt) -> set[str]:
    return set().union(*map(names_in, node.targets)) if isinstance(node, ast.Assign) else set()


def _constant(node: ast.stmt) -> list[tuple[str, int]]:
    """The name and value of a constant; nothing of any other statement."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as value)):
            return [(name, value)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() as value)):
            return [(name, value)]
    return []
