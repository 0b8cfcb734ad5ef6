"""A kernel of the compiler, which is Triton, as CUDA C++.

A block of Triton is spread over threads: every thread has some elements of one row
(`kernels/blocks.cu`). A name of the kernel is a number of each thread if rows or the whole block
have one, and `Elements` if each element has one.
"""

import ast
import math
from collections.abc import Mapping
from typing import NamedTuple

from operators.local.inductor import NotConvertible
from operators.local.ports.blocks import axis_of, lie_in_rows, names_in, sizes_of

TYPES: Mapping[str, str] = {
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "bool": "bool",
    "int1": "bool",
}
"""Of C++, by those of torch and Triton."""

_OPERATORS: Mapping[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
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
    ast.Invert: "!",  # of masks
    ast.Not: "!",
}
_OF_FLOATS = (
    *("exp", "log", "sin", "cos", "floor", "ceil", "exp2", "log2", "tanh", "erf", "log1p"),
    *("expm1", "pow", "fma", "sqrt", "rsqrt"),
)
_FUNCTIONS = {name: f"{name}f" for name in _OF_FLOATS} | {
    "sqrt_rn": "sqrtf",
    "abs": "absolute",
    "div_rn": "__fdiv_rn",
    "sigmoid": "sigmoid",
    "maximum": "maximum",
    "minimum": "minimum",
}
"""Of numbers of a thread; functions of C++ by those of `tl` and libdevice, and of this project."""

_REDUCTIONS = {
    "sum": "Sum",
    "max2": "Maximum",
    "min2": "Minimum",
    "prod": "Product",
    "any_of": "Either",
}
_TUPLES = {
    "online_softmax_combine": "ab",
    "online_softmax_combine_with_sum": "ab",
    "welford_combine": "abc",
    "welford_reduce": "abc",
}
_JOINED = {"online_softmax_reduce": ("together", "ab"), "welford": ("moments", "abc")}
_NO_CHANGE = ("max_contiguous", "multiple_of")


class Text(NamedTuple):
    """C++ for an expression, and whether each element has a value of its own."""

    text: str
    is_whole: bool = False


_TAKEN = frozenset(  # words of C++, and names of `CudaKernel`
    (
        *("auto", "bool", "case", "char", "class", "const", "default", "delete", "do", "double"),
        *("enum", "explicit", "export", "extern", "friend", "goto", "inline", "int"),
        *("long", "mutable", "namespace", "new", "operator", "private", "protected", "public"),
        *("register", "short", "signed", "sizeof", "static", "struct", "switch", "template"),
        *("this", "throw", "typedef", "typename", "union", "unsigned", "using", "virtual"),
        *("void", "volatile", "EACH", "LANES", "i", "lane", "row", "threads"),
    )
)


class Block(NamedTuple):
    """A kernel's block: how many rows, and elements of each; numbers, or parameters' names."""

    rows: str
    columns: str
    in_rows: bool


class CudaKernel:
    """A kernel, written for parameters of given types.

    Args:
        function: the kernel in Triton.
        types: of C++, by parameter that is a pointer.

    Attributes:
        block: its block; rows are `1` if there is one axis.
        parameters: of the template, in order, `LANES` the last.
        text: its definition.

    Raises:
        NotConvertible: it has something that is not known here.
    """

    def __init__(self, function: ast.FunctionDef, types: Mapping[str, str]) -> None:
        sizes = sizes_of(function)
        if not sizes:
            raise NotConvertible(f"{function.name} has no blocks of its own")
        if taken := names_in(function) & _TAKEN:
            raise NotConvertible(f"{function.name} has the name {min(taken)}")
        in_rows = len(sizes) == 1 or lie_in_rows(function)
        numbers = {name: value for node in function.body for name, value in _constant(node)}
        rows, columns = ("1", *(str(numbers.get(size, size)) for size in sizes))[-2:]
        self.block = Block(rows, columns, in_rows)
        arguments = [argument.arg for argument in function.args.args]
        self.parameters = [name for name in arguments if name not in types] + ["LANES"]
        self._whole: set[str] = set()
        self._known: set[str] = set()
        self._axes = len(sizes)
        stored = _stored(function)
        pointers = ", ".join(
            f"{'' if name in stored else 'const '}{types[name]}* {name}"
            for name in arguments
            if name in types
        )
        template = ", ".join(f"int {name}" for name in self.parameters)
        # Or a thread may get more registers than so many threads have.
        bounds = f"__launch_bounds__({rows} * LANES)"
        head = f"template <{template}>\n__global__ void {bounds}\n{function.name}({pointers}) {{"
        body = "\n".join(f"  {line}" for line in self._lines(function.body))
        self.text = f"{head}\n{body}\n}}"

    def _lines(self, body: list[ast.stmt]) -> list[str]:
        """Of statements; constants come first, so the threads' places can follow them."""
        constants = [pair for node in body for pair in _constant(node)]
        rows, columns, in_rows = self.block
        lines = [
            *(f"constexpr {_integer(value)} {name} = {value};" for name, value in constants),
            f"constexpr int EACH = {columns} / LANES;",
            f"constexpr Threads<{rows}, LANES, {str(in_rows).lower()}> threads;",
            "const int lane = threads.lane(), row = threads.row();",
        ]
        for node in body:
            if not _constant(node):
                lines += self._statement(node)
        return lines

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Expr(value=ast.Constant()):
                return []
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="device_assert"))):
                return []
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(attr="store"), args=[to, value, *rest])
            ):
                return [self._store(to, value, rest[0] if rest else None)]
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=[first, last, step])):
                limits = [self.number(each) for each in (first, last, step)]
                steps = f"{name} < {limits[1]}; {name} += {limits[2]}"
                head = f"for (int {name} = {limits[0]}; {steps}) {{"
                before = set(self._known)
                inner = [line for each in node.body for line in self._statement(each)]
                self._known = before
                return [head, *(f"  {line}" for line in inner), "}"]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._assigned(name, self._of(value))
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=ast.Call() as call):
                return self._unpacked([ast.unparse(each) for each in elements], call)
        raise NotConvertible(f"the statement {ast.unparse(node)[:60]}")

    def _assigned(self, name: str, value: Text) -> list[str]:
        if value.text == name:  # `x = x[:, None]`
            return []
        text = self._elements(value) if value.is_whole else value.text
        declared = "" if name in self._known else "auto "
        self._known.add(name)
        self._whole = self._whole | {name} if value.is_whole else self._whole - {name}
        return [f"{declared}{name} = {text};"]

    def _unpacked(self, names: list[str], call: ast.Call) -> list[str]:
        function = ast.unparse(call.func)
        both = f"{names[0]}_and_more"
        if function in _TUPLES:
            parts = _TUPLES[function]
            given = [self._of(each) for each in call.args]
            made = Text(f"{function}({', '.join(each.text for each in given)})", True)
            lines = [f"auto {both} = {self._each(made)};"]
            values = [Text(f"{both}[i].{part}", True) for part in parts]
        elif function in _JOINED:
            joined, parts = _JOINED[function]
            given = [self._of(each) for each in call.args[:-1]]
            arguments = ", ".join(["threads", *(self._elements(each) for each in given)])
            lines = [f"auto {both} = {joined}({arguments});"]
            values = [Text(f"{both}.{part}") for part in parts]
        else:
            raise NotConvertible(f"several values of {function}")
        for name, value in zip(names, values, strict=True):
            lines += self._assigned(name, value)
        return lines

    def _store(self, to: ast.expr, value: ast.expr, mask: ast.expr | None) -> str:
        pointer, at = self._address(to)
        inside, what = self._mask(mask), self._of(value)
        put = f"put({pointer} + {at.text}, {what.text});"
        if at.is_whole or (what.is_whole and self._axes == 1):
            condition = "" if inside.text == "true" else f"if ({inside.text}) "
            return f"for (int i = 0; i < EACH; ++i) {condition}{put}"
        if what.is_whole or inside.is_whole:
            raise NotConvertible(f"elements stored at {ast.unparse(to)[:60]}")
        return f"if (lane == 0 && {inside.text}) {put}"

    def _address(self, node: ast.expr) -> tuple[str, Text]:
        match node:
            case ast.Name(id=name):
                return name, Text("0")
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=offset):
                return name, self._of(offset)
        raise NotConvertible(f"the address {ast.unparse(node)[:60]}")

    def _mask(self, node: ast.expr | None) -> Text:
        if node is None or ast.unparse(node) == "None":
            return Text("true")
        return self._of(node)

    def number(self, node: ast.expr) -> str:
        """An expression that all elements share."""
        found = self._of(node)
        if found.is_whole:
            raise NotConvertible(f"{ast.unparse(node)[:60]} for every element")
        return found.text

    def _each(self, value: Text) -> str:
        return f"each<EACH>([&](int i) {{ return {value.text}; }})"

    def _elements(self, value: Text) -> str:
        name = value.text.removesuffix("[i]")
        return name if name in self._whole else self._each(value)

    def _of(self, node: ast.expr) -> Text:
        """An expression in C++."""
        match node:
            case ast.Constant(value=value):
                return Text(_literal(value))
            case ast.Name(id=name):
                is_whole = name in self._whole
                return Text(f"{name}[i]" if is_whole else name, is_whole)
            case ast.BinOp() | ast.Compare() | ast.UnaryOp():
                return self._operation(node)
            case ast.Subscript() if (axis := axis_of(node)) is not None:
                is_last = axis + 1 == self._axes
                return Text("(lane + i * LANES)", True) if is_last else Text("row")
            case ast.Subscript(value=value):
                return self._of(value)
            case ast.Call():
                return self._call(node)
        raise NotConvertible(f"the expression {ast.unparse(node)[:60]}")

    def _operation(self, node: ast.BinOp | ast.Compare | ast.UnaryOp) -> Text:
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined("(static_cast<float>({}) / {})", left, right)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._joined(f"({{}} {_OPERATORS[type(op)]} {{}})", left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._joined(f"({{}} {_OPERATORS[type(op)]} {{}})", left, right)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return self._joined(f"({_OPERATORS[type(op)]}{{}})", operand)
        raise NotConvertible(f"the operation {ast.unparse(node)[:60]}")

    def _joined(self, text: str, *nodes: ast.expr) -> Text:
        found = [self._of(node) for node in nodes]
        return Text(text.format(*(each.text for each in found)), any(f.is_whole for f in found))

    def _call(self, node: ast.Call) -> Text:
        match node.func:
            case ast.Attribute(value=ast.Name(id="tl" | "libdevice"), attr=name):
                return self._function(name, node)
            case ast.Name(id=name):
                return self._function(name, node)
            case ast.Attribute(value=value, attr="to") if not node.keywords:  # no `bitcast`
                kind = ast.unparse(node.args[0]).removeprefix("tl.")
                return self._joined(f"static_cast<{_type(kind)}>({{}})", value)
            case ast.Attribute(value=made, attr="broadcast_to"):
                return self._of(made)
        raise NotConvertible(f"the call {ast.unparse(node)[:60]}")

    def _function(self, name: str, node: ast.Call) -> Text:
        match name, node.args:
            case "float", [ast.Constant(value=str(value))]:
                return Text(_literal(float(value)))
            case "program_id", [ast.Constant(value=int() as axis)]:
                return Text(f"static_cast<int>(blockIdx.{'xyz'[axis]})")
            case "load", [address, *rest]:
                return self._load(address, rest, node.keywords)
            case "where", [condition, left, right]:
                return self._joined("({} ? {} : {})", condition, left, right)
            case _, [value, ast.Constant()] if name in _REDUCTIONS:
                return self._reduced(value, _REDUCTIONS[name])
            case _, [first, *_] if name in _NO_CHANGE:
                return self._of(first)
            case _, [*given] if name in _FUNCTIONS:
                places = ", ".join(["{}"] * len(given))
                return self._joined(f"{_FUNCTIONS[name]}({places})", *given)
        return self._shaped(name, node)

    def _shaped(self, name: str, node: ast.Call) -> Text:
        """Of functions that are given a shape."""
        match name, node.args:
            case "broadcast_to", [value, ast.List(elts=sizes)]:
                found = self._of(value)
                return Text(found.text, len(sizes) == self._axes or found.is_whole)
            case "broadcast_to", [value, ast.Attribute(value=like, attr="shape")]:
                found, other = self._of(value), self._of(like)
                return Text(found.text, found.is_whole or other.is_whole)
            case (("full" | "zeros"), [ast.List(elts=sizes), *given]):
                return self._full(sizes, given)
            case "full", [ast.Attribute(value=like, attr="shape"), value, _]:
                other = self._of(like)
                text = f"static_cast<decltype({other.text})>({self.number(value)})"
                return Text(text, other.is_whole)
        raise NotConvertible(f"the call {ast.unparse(node)[:60]}")

    def _reduced(self, value: ast.expr, join: str) -> Text:
        if join == "Either":
            made = self._each(self._joined("static_cast<int>({})", value))
            return Text(f"(threads.reduced({made}, {join}()) != 0)")
        return Text(f"threads.reduced({self._elements(self._of(value))}, {join}())")

    def _load(self, address: ast.expr, rest: list[ast.expr], keywords: list[ast.keyword]) -> Text:
        named = {keyword.arg: keyword.value for keyword in keywords}
        pointer, at = self._address(address)
        inside = self._mask(rest[0] if rest else named.get("mask"))
        other = self._of(named["other"]) if "other" in named else Text("0")
        text = f"load({pointer}, {at.text}, {inside.text}, {other.text})"
        return Text(text, at.is_whole or inside.is_whole or other.is_whole)

    def _full(self, sizes: list[ast.expr], given: list[ast.expr]) -> Text:
        value, kind = given if len(given) == 2 else (ast.Constant(0), given[0])
        text = f"static_cast<{_type(ast.unparse(kind).removeprefix('tl.'))}>({self.number(value)})"
        is_block = len(sizes) == self._axes and not isinstance(sizes[-1], ast.Constant)
        return Text(text, is_block)


def _stored(function: ast.FunctionDef) -> set[str]:
    """Parameters that something is stored to."""
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="store"), args=[address, *_]):
                found |= names_in(address)
    return found


def _constant(node: ast.stmt) -> list[tuple[str, int]]:
    """The name and value of a constant; nothing of any other statement."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as value)):
            return [(name, value)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() as value)):
            return [(name, value)]
    return []


def _integer(value: int) -> str:
    return "int" if value < 2**31 else "long long"


def _type(name: str) -> str:
    if name not in TYPES or TYPES[name] in ("__half", "__nv_bfloat16"):
        raise NotConvertible(f"values of the type {name}")
    return TYPES[name]


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value) if abs(value) < 2**31 else f"{value}LL"
        case float() if math.isnan(value):
            return "__int_as_float(0x7fffffff)"
        case float() if math.isinf(value):
            return "infinity()" if value > 0 else "(-infinity())"
        case float():
            return f"{value!r}f"
    raise NotConvertible(f"the constant {value!r}")
