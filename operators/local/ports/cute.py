"""Programs of the compiler, which are Triton, in CuTe DSL.

A block of Triton is spread over threads: every thread has some elements of one row, in a list
(`kernels/cute_blocks.py`). Kernels are compiled when the program is imported.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from evolve.core.compiled import Compiled
from operators.local.inductor import NotConvertible
from operators.local.inductor.layout import MAX_LINE, body_text, call_text
from operators.local.ports.base import Port
from operators.local.ports.blocks import names_in
from operators.local.ports.elements import ROW, Text
from operators.local.ports.library import functions_of, with_functions
from operators.local.ports.products import NAME, batched_launch
from operators.local.ports.programs import (
    FLAT,
    KernelCall,
    after_tunables,
    counts,
    kernels_of,
    lanes,
    option,
    product_options,
    with_imports,
    with_lines,
    without_triton,
)
from operators.local.ports.python_kernel import FORMULAS, PythonKernel, constants_of

_WIDTH = MAX_LINE - 8
_STEP = " " * 4
_TYPES = {
    "float32": "cutlass.Float32",
    "float16": "cutlass.Float16",
    "bfloat16": "cutlass.BFloat16",
    "int32": "cutlass.Int32",
    "int64": "cutlass.Int64",
    "bool": "cutlass.Boolean",
}
_JOINS = {
    "sum": "add",
    "prod": "multiply",
    "max2": "maximum",
    "min2": "minimum",
    "any_of": "maximum",
}
_SAME = ("cos", "erf", "exp", "exp2", "log", "log2", "rsqrt", "sin", "sqrt", "tanh")
_OWN = ("load", "store", "where", "add", "multiply", "lane_and_row", "reduce_lanes", "reduce_row")
_TAKEN = frozenset({*_OWN, "cute", "cutlass", "i", "lane", "row", "EACH", "LANES"})
_IMPORTS = (
    "import cuda.bindings.driver as cuda",
    "import cutlass",
    "from cutlass import cute",
    "from cutlass.cute.nvgpu import warp",
    "from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream",
    "from cutlass.memory import SmemAllocator",
)
_COMPILED = '''STREAM = make_fake_stream(use_tvm_ffi_env_stream=True)
OPTIONS = "--enable-tvm-ffi"


def memory(kind):
    """A tensor that is not there yet, by which a kernel is compiled."""
    return make_fake_compact_tensor(kind, (cute.sym_int(),))'''


class LaneKernel(PythonKernel):
    """A kernel in CuTe DSL.

    Attributes:
        text: its definition.
    """

    taken = _TAKEN
    functions = {name: f"cute.math.{name}" for name in _SAME} | {
        "sqrt_rn": "cute.math.sqrt",
        **FORMULAS,
        "sigmoid": "(1.0 / (1.0 + cute.math.exp(-{})))",
        "abs": "where({0} < 0, -{0}, {0})",
        "maximum": "maximum",
        "minimum": "minimum",
    }
    reductions = _JOINS
    chosen = "where({}, {}, {})"

    def __init__(self, function: ast.FunctionDef, kinds: Mapping[str, str]) -> None:
        super().__init__(function, kinds)
        rows, columns, in_rows = self.block
        self._group = f"{rows}, LANES, {in_rows}"
        constants = [f"{name}: cutlass.Constexpr" for name in (*self.constants, "LANES")]
        pointers = [f"{name}: cute.Tensor" for name in self.pointers]
        head = call_text(f"def {self.name}(", [*pointers, *constants], MAX_LINE - 1)
        lines = [
            *(f"{name} = {value}" for name, value in self.numbers.items()),
            f"EACH = {columns} // LANES",
            f"lane, row = lane_and_row({self._group})",
            *self.lines(function.body),
        ]
        body = body_text(ast.parse("\n".join(lines)).body, _STEP)
        self.text = f"@cute.kernel\n{head}:\n{body}"

    def cast(self, kind: str, text: str) -> str:
        if kind not in _TYPES or kind.endswith("float16"):
            raise NotConvertible(f"values of the type {kind}")
        return f"{_TYPES[kind]}({text})"

    def same(self, kind: str, *given: Text) -> list[Text]:
        """Numbers of Python too become those of the language."""
        return [
            one._replace(text=self.cast(kind, one.text), kind=kind)
            if one.kind != kind or (one.is_index and one.rank == 0)
            else one
            for one in given
        ]

    def place(self, *, is_last: bool) -> str:
        return "(lane + i * LANES)" if is_last else "row"

    def program(self, axis: int) -> str:
        return f"cute.arch.block_idx()[{axis}]"

    def load(self, pointer: str, at: Text, inside: Text, other: Text) -> str:
        return f"load({pointer}, {at.text}, {inside.text}, {other.text})"

    def store(self, pointer: str, at: Text, value: Text, inside: Text) -> list[str]:
        (value,) = self.same(value.kind, value)
        if at.is_whole:
            put = f"store({pointer}, {at.text}, {value.text}, {inside.text})"
            return ["for i in cutlass.range_constexpr(EACH):", f"{_STEP}{put}"]
        only = "lane == 0" if inside.text == "True" else f"(lane == 0) & {inside.text}"
        return [f"store({pointer}, {at.text}, {value.text}, {only})"]

    def assign(self, name: str, value: Text) -> tuple[list[str], Text]:
        if self.is_known(name):  # a loop changes it, in its own type
            (value,) = self.same(self.named(name).kind, value)
        if not value.is_whole:
            return [f"{name} = {value.text}"], value._replace(text=name)
        return [f"{name} = {self._each(value.text)}"], value._replace(text=f"{name}[i]")

    def _each(self, text: str) -> str:
        return f"[{text} for i in range(EACH)]"

    def reduced(self, value: Text, join: str) -> Text:
        kind = "int32" if join == "any_of" else value.kind
        if kind != value.kind:
            (value,) = self.same(kind, value)
        name = value.text.removesuffix("[i]")
        elements = name if self.is_whole(name) else self._each(value.text)
        found = f"reduce_row({elements}, {_JOINS[join]}, {self._group})"
        return Text(f"({found} != 0)" if join == "any_of" else found, ROW, kind)

    def full(self, value: str, kind: str, rank: int) -> str:
        return self.cast(kind, value)


@dataclass(frozen=True, slots=True)
class _Instance:
    """A kernel with its constants, which one compiled function launches.

    Attributes:
        kernel: its name.
        before: statements that choose sizes for it.
        pointers: types of its tensors in CuTe DSL, by name.
        made: an expression of what the kernel is given beside tensors, or nothing.
        constants: expressions.
        axes: of the grid.
        threads: of a block, an expression.
    """

    kernel: str
    before: tuple[str, ...]
    pointers: tuple[tuple[str, str], ...]
    made: tuple[str, ...]
    constants: tuple[str, ...]
    axes: int
    threads: str

    def text(self, name: str) -> str:
        """Its launcher, and that compiled under a name."""
        names = [pointer for pointer, _ in self.pointers]
        grid = [f"grid_{axis}" for axis in range(self.axes)]
        parameters = [*(f"{one}: cute.Tensor" for one in names)]
        parameters += [f"{one}: cutlass.Int32" for one in grid] + ["stream: cuda.CUstream"]
        given = call_text(f"{self.kernel}(", [*names, *self.made, *self.constants], _WIDTH)
        sizes = ", ".join([*grid, *["1"] * (3 - self.axes)])
        run = [f"grid=[{sizes}]", f"block=[{self.threads}, 1, 1]", "stream=stream"]
        head = call_text(f"def launch_{name}(", parameters, MAX_LINE - 1)
        body = body_text(ast.parse(f"{given}.launch({', '.join(run)})").body, _STEP)
        compiled = [f"memory({kind})" for _, kind in self.pointers]
        compiled += ["cutlass.Int32(1)"] * self.axes + ["STREAM", "options=OPTIONS"]
        call = call_text(f"{name} = cute.compile(", [f"launch_{name}", *compiled], MAX_LINE)
        before = "".join(f"{line}\n" for line in self.before)
        gap = "\n\n" if before else ""
        return f"{before}{gap}@cute.jit\n{head}:\n{body}\n\n\n{call}"


def rewritten(source: str, compiled: Compiled) -> str:
    """The program with its kernels in CuTe DSL.

    Raises:
        NotConvertible: a kernel has an operation, a type or a shape that is not known here.
    """
    calls, functions, types = kernels_of(source, compiled)
    kernels = {name: LaneKernel(functions[name], types[name]) for name in types if name != NAME}
    names: dict[_Instance, str] = {}
    new: dict[int, tuple[ast.stmt, str]] = {}
    for call in calls:
        instance = _instance(call, kernels, types)
        number = sum(one.kernel == call.kernel for one in names) + 1
        base = f"run_{call.kernel.removesuffix('_kernel')}"
        name = names.setdefault(instance, f"{base}_{number}" if number > 1 else base)
        given = [*(f"flat({ast.unparse(one)})" for one in _tensors(call)), *counts(call)]
        new[call.node.lineno] = call.node, call_text(f"{name}(", given, _WIDTH)
    texts = [*functions_of("cute_product").values()] if NAME in types else []
    texts += [kernel.text for kernel in kernels.values()]
    texts = with_functions("cute_blocks", texts)
    made = [instance.text(name) for instance, name in names.items()]
    paragraphs = without_triton(with_lines(source, new))
    program = after_tunables(paragraphs, *constants_of(texts), *texts, _COMPILED, *made, FLAT)
    used = names_in(ast.parse(program))
    return with_imports(program, *(line for line in _IMPORTS if line.split()[-1] in used))


def _tensors(call: KernelCall) -> tuple[ast.expr, ...]:
    """Of a product without a bias, its result in the place of that."""
    return tuple(
        call.arguments[-1] if ast.unparse(one) == "None" else one for one in call.arguments
    )


def _instance(
    call: KernelCall, kernels: Mapping[str, LaneKernel], kinds: Mapping[str, Mapping[str, str]]
) -> _Instance:
    if call.kernel == NAME:
        return _of_product(call, kinds[NAME]["a_ptr"])
    kernel = kernels[call.kernel]
    rows, columns = (option(call, name) for name in kernel.block[:2])
    name = f"{call.kernel.removesuffix('_kernel').upper()}_LANES"
    warps = ast.unparse(call.options["num_warps"])
    return _Instance(
        call.kernel,
        (f"{name} = {lanes(rows, columns, warps)}  # threads of a row",),
        tuple((one, _type(kernel.kinds[one])) for one in kernel.pointers),
        (),
        (*(option(call, one) for one in kernel.constants), name),
        len(counts(call)),
        name if rows == "1" else f"{rows} * {name}",
    )


def _of_product(call: KernelCall, kind: str) -> _Instance:
    options, has_bias = product_options(call)
    warps = options["num_warps"]
    names = (
        *("SHAPE", "A_STRIDE", "B_STRIDE", "BIAS_STRIDE", "OUT_STRIDE"),
        *("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "PARTS"),
    )
    narrow = _type(kind if kind != "float32" else "bfloat16")
    multiply = f"warp.MmaF16BF16Op({narrow}, cutlass.Float32, (16, 8, 16))"
    mma = f"cute.make_tiled_mma({multiply}, cute.make_layout(({warps} // 2, 2, 1)))"
    pointers = tuple((one, _type(kind)) for one in ("a", "b", "bias", "out"))
    constants = (str(has_bias), *(options[name] for name in names), f"32 * {warps}")
    return _Instance(NAME, (), pointers, (mma,), constants, len(counts(call)), f"32 * {warps}")


def _type(kind: str) -> str:
    if kind not in _TYPES:
        raise NotConvertible(f"a tensor of the type {kind}")
    return _TYPES[kind]


_product = partial(batched_launch, columns=(64, 128, 64), depth=(16, 64, 32))
CUTE = Port("cute", _product, rewritten, products_on=range(8, 100))
