"""Programs of the compiler, which are Triton, in cuTile.

Blocks are tiles in both. Kernels of the compiler address memory by element, so their tiles are
gathered and scattered; a product loads tiles of its matrices.
"""

import ast
from collections.abc import Mapping

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
    without_tunables,
)
from operators.local.ports.python_kernel import FORMULAS, PythonKernel, constants_of
from operators.local.templates.launch import Launch
from operators.local.templates.operations.matrices import Matrices
from operators.local.templates.tensors import HALF

_WIDTH = MAX_LINE - 8
_REDUCTIONS = {
    "sum": "ct.sum({}, axis={}, keepdims=True)",
    "prod": "ct.prod({}, axis={}, keepdims=True)",
    "max2": "ct.max({}, axis={}, keepdims=True, propagate_nan=True)",
    "min2": "ct.min({}, axis={}, keepdims=True, propagate_nan=True)",
    "any_of": "(ct.max(ct.astype({}, ct.int32), axis={}, keepdims=True) != 0)",
}
_SAME = (
    *("abs", "ceil", "cos", "exp", "exp2", "floor", "log", "log2", "pow", "rsqrt", "sin", "sqrt"),
    "tanh",
)


class TileKernel(PythonKernel):
    """A kernel in cuTile.

    Attributes:
        text: its definition.
    """

    functions = {name: f"ct.{name}" for name in _SAME} | {
        "sqrt_rn": "ct.sqrt",
        **FORMULAS,
        "sigmoid": "(1.0 / (1.0 + ct.exp(-{})))",
        "maximum": "ct.maximum({}, {}, propagate_nan=True)",
        "minimum": "ct.minimum({}, {}, propagate_nan=True)",
    }
    reductions = _REDUCTIONS
    chosen = "ct.where({}, {}, {})"

    def __init__(self, function: ast.FunctionDef, kinds: Mapping[str, str]) -> None:
        super().__init__(function, kinds)
        constants = [f"{name}: ct.Constant[int]" for name in self.constants]
        head = call_text(f"def {self.name}(", [*self.pointers, *constants], MAX_LINE - 1)
        numbers = [f"{name} = {value}" for name, value in self.numbers.items()]
        body = ast.parse("\n".join([*numbers, *self.lines(function.body)])).body
        self.text = f"@ct.kernel\n{head}:\n{body_text(body, ' ' * 4)}"

    @property
    def _shape(self) -> str:
        rows, columns, _ = self.block
        return f"({columns},)" if self.axes == 1 else f"({rows}, {columns})"

    def cast(self, kind: str, text: str) -> str:
        if kind in HALVES:
            raise NotConvertible(f"values of the type {kind}")
        return f"ct.astype({text}, ct.{'bool_' if kind == 'bool' else kind})"

    def place(self, *, is_last: bool) -> str:
        size = self.block.columns if is_last else self.block.rows
        text = f"ct.arange({size}, dtype=ct.int32)"
        if self.axes == 1:
            return text
        return f"ct.reshape({text}, ({f'1, {size}' if is_last else f'{size}, 1'}))"

    def program(self, axis: int) -> str:
        return f"ct.bid({axis})"

    def load(self, pointer: str, at: Text, inside: Text, other: Text) -> str:
        masked = (
            "" if inside.text == "True" else f"mask={inside.text}, padding_value={other.text}, "
        )
        text = f"ct.gather({pointer}, {at.text}, {masked}check_bounds=False)"
        return f"ct.astype({text}, ct.float32)" if self.kinds[pointer] in HALVES else text

    def store(self, pointer: str, at: Text, value: Text, inside: Text) -> list[str]:
        masked = "" if inside.text == "True" else f"mask={inside.text}, "
        one = f"ct.reshape({value.text}, ())" if value.rank > at.rank == 0 else value.text
        text = f"ct.astype({one}, {pointer}.dtype)"
        return [f"ct.scatter({pointer}, {at.text}, {text}, {masked}check_bounds=False)"]

    def assign(self, name: str, value: Text) -> tuple[list[str], Text]:
        return [f"{name} = {value.text}"], value._replace(text=name)

    def reduced(self, value: Text, join: str) -> Text:
        text = _REDUCTIONS[join].format(value.text, self.axes - 1)
        return Text(text, ROW, "bool" if join == "any_of" else value.kind)

    def full(self, value: str, kind: str, rank: int) -> str:
        if rank != WHOLE:
            return self.cast(kind, value)
        return f"ct.full({self._shape}, {value}, ct.{'bool_' if kind == 'bool' else kind})"

    def spread(self, text: str) -> str:
        return f"ct.broadcast_to({text}, {self._shape})"


def rewritten(source: str, compiled: Compiled) -> str:
    """The program with its kernels in cuTile.

    Raises:
        NotConvertible: a kernel has an operation, a type or a shape that is not known here.
    """
    calls, functions, types = kernels_of(source, compiled)
    texts: list[str] = []
    for name, kinds in types.items():
        if name == NAME:
            texts += functions_of("cutile_product").values()
        else:
            texts.append(TileKernel(functions[name], kinds).text)
    new = {one.node.lineno: (one.node, _launch_text(one, functions)) for one in calls}
    paragraphs = without_triton(without_tunables(with_lines(source, new), "NUM_WARPS"))
    helpers = [FLAT] if any("flat(" in text for _, text in new.values()) else []
    program = after_tunables(paragraphs, *constants_of(texts), *texts, *helpers)
    return with_imports(program, "import cuda.tile as ct")


def _launch_text(call: KernelCall, functions: Mapping[str, ast.FunctionDef]) -> str:
    if call.kernel == NAME:
        options, has_bias = product_options(call)
        tuned = (options[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "PARTS"))
        arguments = [*product_views(call), str(int(has_bias)), *tuned]
    else:
        tensors, constants = flat_arguments(call, functions[call.kernel])
        arguments = [*tensors, *constants]
    grid = f"({', '.join(counts(call))},)"
    name = f"{call.kernel}_arguments"
    line = call_text(f"{name} = (", arguments, _WIDTH)
    if len(arguments) == 1:
        line = f"{name} = ({arguments[0]},)"
    start = "torch.cuda.current_stream()"
    return f"{line}\n{call_text('ct.launch(', [start, grid, call.kernel, name], _WIDTH)}"


def _product(product: Matrices) -> tuple[Launch]:
    """Blocks of float32 begin smaller, since larger ones spill registers."""
    side = 128 if tuple(product.precisions) == HALF else 64
    return batched_launch(product, (64, 256, side), (32, 64, 32), side)


CUTILE = Port("cutile", _product, rewritten, products_on=range(8, 100))
