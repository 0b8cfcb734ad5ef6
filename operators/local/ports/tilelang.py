"""Programs of the compiler, which are Triton, in TileLang.

A block of Triton is a fragment, which threads hold in registers; a statement is a loop over its
elements. Places of elements and masks are written out where they are used.
"""

import ast
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from evolve.core.compiled import Compiled
from operators.local.inductor import NotConvertible
from operators.local.inductor.layout import MAX_LINE, body_text, call_text
from operators.local.ports.base import Port
from operators.local.ports.elements import HALVES, ROW, WHOLE, Text
from operators.local.ports.library import functions_of
from operators.local.ports.products import NAME, batched_launch
from operators.local.ports.programs import (
    FLAT,
    KernelCall,
    after_tunables,
    counts,
    flat_arguments,
    kernels_of,
    product_options,
    product_views,
    with_imports,
    with_lines,
    without_triton,
)
from operators.local.ports.python_kernel import FORMULAS, PythonKernel

_WIDTH = MAX_LINE - 8
_FLOATS = ("float32", "float64")
_STEP = " " * 4
_TAKEN = frozenset({"T", "i", "j", "main", "tilelang", "block_0", "block_1", "block_2"})
_REDUCTIONS = {
    "sum": "T.reduce_sum({}, {}, dim=1)",
    "max2": "T.reduce_max({}, {}, dim=1)",
    "min2": "T.reduce_min({}, {}, dim=1)",
    "any_of": "T.reduce_max({}, {}, dim=1)",
}
_SAME = (
    *("abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log1p", "log2", "pow", "rsqrt"),
    *("sin", "sqrt", "tanh"),
)
# Sound: a masked access is conditional already, and Triton's others are inside their tensors.
_NO_BOUNDS_CHECKS = "pass_configs={tilelang.PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS: True}"


class FragmentKernel(PythonKernel):
    """A kernel in TileLang.

    Args:
        function: the kernel in Triton.
        kinds: as `ElementKernel`.
        axes: number of axes of the launch's grid.

    Attributes:
        text: its definition.
    """

    taken = _TAKEN
    operators: ClassVar[Mapping[type, str]] = {
        **PythonKernel.operators,
        ast.Invert: "T.Not",
        ast.Not: "T.Not",
    }
    functions = {name: f"T.{name}" for name in _SAME} | {
        "sqrt_rn": "T.sqrt",
        **FORMULAS,
        "sigmoid": "(1.0 / (1.0 + T.exp(-{})))",
        "maximum": "T.if_then_else(({0} > {1}) | T.isnan({0}), {0}, {1})",
        "minimum": "T.if_then_else(({0} < {1}) | T.isnan({0}), {0}, {1})",
    }
    infinity = "T.infinity('float32')"
    reductions = _REDUCTIONS
    chosen = "T.if_then_else({}, {}, {})"

    def __init__(self, function: ast.FunctionDef, kinds: Mapping[str, str], axes: int) -> None:
        super().__init__(function, kinds)
        self._fragments: dict[str, str] = {}
        numbers = [f"{name} = {value}" for name, value in self.numbers.items()]
        sizes = [f'{name}_size = T.dynamic("{name}_size")' for name in self.pointers]
        tensors = [f'{name}: T.Tensor(({name}_size,), "{kinds[name]}")' for name in self.pointers]
        grid = [f"GRID_{axis}" for axis in range(axes)]
        blocks = [f"block_{axis}" for axis in range(axes)]
        body = self.lines(function.body)
        made = [f"{name} = T.alloc_fragment({like})" for name, like in self._fragments.items()]
        place = blocks[0] if axes == 1 else f"({', '.join(blocks)})"
        lines = [
            *numbers,
            *sizes,
            "@T.prim_func",
            f"def main({', '.join(tensors)}):",
            f"{_STEP}with T.Kernel({', '.join(grid)}, threads=32 * NUM_WARPS) as {place}:",
            *(f"{_STEP}{_STEP}{line}" for line in [*made, *body]),
            "return main",
        ]
        head = call_text(f"def {self.name}(", [*self.constants, *grid, "NUM_WARPS"], MAX_LINE - 1)
        text = body_text(ast.parse("\n".join(lines)).body, _STEP)
        self.text = f"@tilelang.jit({_NO_BOUNDS_CHECKS})\n{head}:\n{text}"

    def cast(self, kind: str, text: str) -> str:
        if kind in HALVES:
            raise NotConvertible(f"values of the type {kind}")
        return f"T.cast({text}, '{kind}')"

    def same(self, kind: str, *given: Text) -> list[Text]:
        return [
            one if one.kind == kind else one._replace(text=self.cast(kind, one.text), kind=kind)
            for one in given
        ]

    def call(self, name: str, kind: str, *given: str) -> str:
        if kind not in _FLOATS and name in ("maximum", "minimum"):
            return f"T.{name[:3]}({', '.join(given)})"
        return super().call(name, kind, *given)

    def place(self, *, is_last: bool) -> str:
        return "j" if is_last else "i"

    def program(self, axis: int) -> str:
        return f"block_{axis}"

    def load(self, pointer: str, at: Text, inside: Text, other: Text) -> str:
        kind = self.kinds[pointer]
        read = f"{pointer}[{at.text}]"
        if kind in HALVES:
            kind, read = "float32", f"T.cast({read}, 'float32')"
        if inside.text == "True":
            return read
        return self.chosen.format(inside.text, read, self.same(kind, other)[0].text)

    def store(self, pointer: str, at: Text, value: Text, inside: Text) -> list[str]:
        rank = max(at.rank, value.rank)
        kind = self.kinds[pointer]
        text = value.text if value.kind == kind else f"T.cast({value.text}, '{kind}')"
        put = f"{pointer}[{at.text}] = {text}"
        lines = [put] if inside.text == "True" else [f"if {inside.text}:", f"{_STEP}{put}"]
        return self._each(rank, *lines)

    def _each(self, rank: int, *lines: str) -> list[str]:
        """A loop over elements, over rows, or, for one value, over a single one."""
        rows, columns, _ = self.block
        if rank == WHOLE and self.axes == 2:
            head = f"for i, j in T.Parallel({rows}, {columns}):"
        elif rank == WHOLE:
            head = f"for j in T.Parallel({columns}):"
        else:
            head = f"for i in T.Parallel({rows if rank == ROW else 1}):"
        return [head, *(f"{_STEP}{line}" for line in lines)]

    def _made(self, name: str, rank: int, kind: str) -> str:
        """A fragment, and how an element of it is read."""
        rows, columns, _ = self.block
        whole = (f"{rows}, {columns}", "i, j") if self.axes == 2 else (f"{columns},", "j")
        shape, place = whole if rank == WHOLE else (f"{rows},", "i")
        like = f"({shape}), '{kind}'"
        if self._fragments.setdefault(name, like) != like:
            raise NotConvertible(f"{name} has values of several types")
        return f"{name}[{place}]"

    def assign(self, name: str, value: Text) -> tuple[list[str], Text]:
        if value.rank == 0 or (value.is_index and name not in self.carried):
            return [], value
        if self.is_known(name):  # a loop changes it, in its own type
            known = self.named(name)
            (value,) = self.same(known.kind, value._replace(rank=known.rank))
        read = self._made(name, value.rank, value.kind)
        text = self.cast(value.kind, value.text) if value.is_index else value.text
        return self._each(value.rank, f"{read} = {text}"), Text(read, value.rank, value.kind)

    def loop_name(self, name: str, limits: list[str]) -> str:
        return f"({limits[0]} + {name}_step * {limits[2]})"

    def loop(self, name: str, limits: list[str], inner: list[str]) -> list[str]:
        steps = f"T.ceildiv({limits[1]} - {limits[0]}, {limits[2]})"
        return [f"for {name}_step in T.serial({steps}):", *(f"{_STEP}{line}" for line in inner)]

    def reduced(self, value: Text, join: str) -> Text:
        if self.axes == 1:
            raise NotConvertible(f"{join} of a block of one axis")
        kind = "int32" if join == "any_of" else value.kind
        (value,) = self.same(kind, value)
        name = value.text.removesuffix("[i, j]")
        if name not in self._fragments or not value.is_whole:
            name = f"parts_{len(self._fragments)}"
            self._filled(name, value)
        read = self._reduced(_REDUCTIONS[join], name, kind)
        if join in ("max2", "min2") and kind in _FLOATS:  # which leave NaN out; torch does not
            none = f"not_a_number_{len(self._fragments)}"
            text = f"T.if_then_else(T.isnan({name}[i, j]), {name}[i, j], T.cast(0, '{kind}'))"
            self._filled(none, Text(text, WHOLE, kind))
            read = f"({read} + {self._reduced(_REDUCTIONS['sum'], none, kind)})"
        return Text(f"({read} != 0)", ROW, "bool") if join == "any_of" else Text(read, ROW, kind)

    def _filled(self, name: str, value: Text) -> None:
        read = self._made(name, WHOLE, value.kind)
        self.before += self._each(WHOLE, f"{read} = {value.text}")

    def _reduced(self, reduction: str, name: str, kind: str) -> str:
        """How a row's element is read of the reduction of a fragment."""
        found = f"row_{len(self._fragments)}"
        read = self._made(found, ROW, kind)
        self.before.append(reduction.format(name, found))
        return read

    def full(self, value: str, kind: str, rank: int) -> str:
        return self.cast(kind, value)


def rewritten(source: str, compiled: Compiled) -> str:
    """The program with its kernels in TileLang.

    Raises:
        NotConvertible: a kernel has an operation, a type or a shape that is not known here.
    """
    calls, functions, types = kernels_of(source, compiled)
    axes = {one.kernel: len(counts(one)) for one in calls}
    texts: list[str] = []
    for name, kinds in types.items():
        if name == NAME:
            texts += functions_of("tilelang_product").values()
        else:
            texts.append(FragmentKernel(functions[name], kinds, axes[name]).text)
    new = {one.node.lineno: (one.node, _launch_text(one, functions, types)) for one in calls}
    helpers = [FLAT] if any("flat(" in text for _, text in new.values()) else []
    program = after_tunables(without_triton(with_lines(source, new)), *texts, *helpers)
    return with_imports(program, "import tilelang", "import tilelang.language as T")


def _launch_text(
    call: KernelCall,
    functions: Mapping[str, ast.FunctionDef],
    kinds: Mapping[str, Mapping[str, str]],
) -> str:
    if call.kernel == NAME:
        constants, given = _of_product(call, kinds[NAME]["a_ptr"])
    else:
        given, constants = flat_arguments(call, functions[call.kernel])
        constants += counts(call)
    constants = [*constants, ast.unparse(call.options["num_warps"])]
    return call_text(f"{call_text(f'{call.kernel}(', constants, _WIDTH)}(", given, _WIDTH)


def _of_product(call: KernelCall, kind: str) -> tuple[list[str], list[str]]:
    options, has_bias = product_options(call)
    for name in ("A_STRIDE", "B_STRIDE"):
        if 0 in ast.literal_eval(options[name])[1:]:
            raise NotConvertible(
                "an operand that repeats its rows or columns: TMA takes no stride of 0"
            )
    fixed = ("SHAPE", "BATCH", "A_STRIDE", "B_STRIDE", "BIAS_STRIDE", "OUT_STRIDE")
    tuned = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "PARTS")
    constants = [options[name] for name in fixed] + [repr(kind), str(has_bias)]
    return constants + [options[name] for name in tuned], product_views(call, shared_once=True)


_product = partial(batched_launch, columns=(64, 128, 128), depth=(32, 64, 32))
TILELANG = Port("tilelang", _product, rewritten, products_on=range(8, 100))
