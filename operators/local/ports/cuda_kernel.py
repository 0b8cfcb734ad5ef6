"""A kernel of the compiler, which is Triton, as CUDA C++.

A block of Triton is spread over threads: every thread has some elements of one row
(`kernels/blocks.cu`). A name of the kernel is a number of each thread if rows or the whole block
have one, and `Elements` if each element has one.
"""

import ast
import math
from collections.abc import Mapping

from operators.local.inductor import NotConvertible
from operators.local.ports.elements import JOINED, OPERATORS, WHOLE, ElementKernel, Text

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
    **OPERATORS,
    ast.FloorDiv: "/",
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
_JOINED = {"online_softmax_reduce": "together", "welford": "moments"}
_PARTS = "abc"  # of the structures that these and functions of several values give


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


class CudaKernel(ElementKernel):
    """A kernel, written for parameters of given types.

    Args:
        function: the kernel in Triton.
        kinds: as `ElementKernel`.

    Attributes:
        parameters: of the template, in order, `LANES` the last.
        text: its definition.

    Raises:
        NotConvertible: it has something that is not known here.
    """

    taken = _TAKEN
    operators = _OPERATORS
    functions = _FUNCTIONS
    reductions = _REDUCTIONS
    divided = "(static_cast<float>({}) / {})"
    chosen = "({} ? {} : {})"

    def __init__(self, function: ast.FunctionDef, kinds: Mapping[str, str]) -> None:
        super().__init__(function, kinds)
        self.parameters = [*self.constants, "LANES"]
        pointers = ", ".join(
            f"{'' if name in self.written else 'const '}{TYPES[kinds[name]]}* {name}"
            for name in self.pointers
        )
        template = ", ".join(f"int {name}" for name in self.parameters)
        # Or a thread may get more registers than so many threads have.
        bounds = f"__launch_bounds__({self.block.rows} * LANES)"
        head = f"template <{template}>\n__global__ void {bounds}\n{self.name}({pointers}) {{"
        body = "\n".join(f"  {line}" for line in [*self._places(), *self.lines(function.body)])
        self.text = f"{head}\n{body}\n}}"

    def _places(self) -> list[str]:
        """Constants come first, so the threads' places can follow them."""
        rows, columns, in_rows = self.block
        return [
            *(
                f"constexpr {'int' if value < 2**31 else 'long long'} {name} = {value};"
                for name, value in self.numbers.items()
            ),
            f"constexpr int EACH = {columns} / LANES;",
            f"constexpr Threads<{rows}, LANES, {str(in_rows).lower()}> threads;",
            "const int lane = threads.lane(), row = threads.row();",
        ]

    def literal(self, value: object) -> str:
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

    def cast(self, kind: str, text: str) -> str:
        return f"static_cast<{_type(kind)}>({text})"

    def place(self, *, is_last: bool) -> str:
        return "(lane + i * LANES)" if is_last else "row"

    def program(self, axis: int) -> str:
        return f"static_cast<int>(blockIdx.{'xyz'[axis]})"

    def load(self, pointer: str, at: Text, inside: Text, other: Text) -> str:
        return f"load({pointer}, {at.text}, {inside.text}, {other.text})"

    def store(self, pointer: str, at: Text, value: Text, inside: Text) -> list[str]:
        put = f"put({pointer} + {at.text}, {value.text});"
        if at.is_whole:
            condition = "" if inside.text == "true" else f"if ({inside.text}) "
            return [f"for (int i = 0; i < EACH; ++i) {condition}{put}"]
        return [f"if (lane == 0 && {inside.text}) {put}"]

    def assign(self, name: str, value: Text) -> tuple[list[str], Text]:
        text = self._elements(value) if value.is_whole else value.text
        declared = "" if self.is_known(name) else "auto "
        read = f"{name}[i]" if value.is_whole else name
        return [f"{declared}{name} = {text};"], value._replace(text=read)

    def loop(self, name: str, limits: list[str], inner: list[str]) -> list[str]:
        steps = f"{name} < {limits[1]}; {name} += {limits[2]}"
        head = f"for (int {name} = {limits[0]}; {steps}) {{"
        return [head, *(f"  {line}" for line in inner), "}"]

    def reduced(self, value: Text, join: str) -> Text:
        name = _REDUCTIONS[join]
        if name == "Either":
            made = self._each(f"static_cast<int>({value.text})")
            return Text(f"(threads.reduced({made}, {name}()) != 0)", kind="bool")
        return Text(f"threads.reduced({self._elements(value)}, {name}())", kind=value.kind)

    def unpacked(self, function: str, names: list[str], given: list[Text]) -> list[str]:
        both = f"{names[0]}_and_more"
        if function in JOINED:
            arguments = ", ".join(["threads", *map(self._elements, given)])
            made, rank, read = f"{_JOINED[function]}({arguments})", 0, both
        else:
            made = self._each(f"{function}({', '.join(each.text for each in given)})")
            rank, read = WHOLE, f"{both}[i]"
        lines = [f"auto {both} = {made};"]
        for name, part in zip(names, _PARTS, strict=False):
            lines += self.assigned(name, Text(f"{read}.{part}", rank, "float32"))
        return lines

    def _each(self, text: str) -> str:
        return f"each<EACH>([&](int i) {{ return {text}; }})"

    def _elements(self, value: Text) -> str:
        """All of an element's values; a name is one of them already."""
        name = value.text.removesuffix("[i]")
        return name if self.is_whole(name) else self._each(value.text)


def _type(name: str) -> str:
    if name not in TYPES or TYPES[name] in ("__half", "__nv_bfloat16"):
        raise NotConvertible(f"values of the type {name}")
    return TYPES[name]
