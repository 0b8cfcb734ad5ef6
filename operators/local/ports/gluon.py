"""Kernels of the compiler, which are Triton, in Gluon.

Both have the same operations on blocks. Gluon also needs layouts, by which threads have elements of
a block: a kernel gets one layout, and all others follow from it.
"""

import ast
import re
import textwrap
from dataclasses import replace
from functools import partial

from evolve.core.compiled import Compiled
from operators.local.inductor import NotConvertible
from operators.local.inductor.addresses import OF_REDUCTION
from operators.local.inductor.layout import MAX_LINE, body_text, call_text
from operators.local.ports.base import Port
from operators.local.ports.blocks import (
    axis_of,
    is_column,
    is_whole_block,
    lie_in_rows,
    names_in,
    sizes_of,
)
from operators.local.ports.library import functions_of
from operators.local.ports.products import product_launch
from operators.local.ports.programs import PARAGRAPH, KernelCall, kernel_calls, with_lines
from operators.local.templates import library
from operators.local.templates.launch import Launch, one_of
from operators.local.templates.operations import packed
from operators.local.templates.operations.matrices import How, Matrices
from operators.local.templates.tensors import HALF

_STEP = " " * 4
_TILED = "tiled_product_kernel"
_PACKED = "packed_product_kernel"
_OF_TILES = ("side_by_side", "accumulator", "block_corner", "write_sums")
_ALIGNED = 8  # fp16 or bf16 elements in 16 bytes
_LAYOUT = "layout"
_SAME = frozenset(  # in both, with the same arguments
    (
        *("abs", "associative_scan", "assume", "atomic_add", "cast", "cdiv", "ceil", "constexpr"),
        *("cos", "device_assert", "erf", "exp", "exp2", "expand_dims", "fdiv", "floor", "fma"),
        *("load", "log", "log2", "max", "max_constancy", "max_contiguous", "maximum", "min"),
        *("minimum", "multiple_of", "num_programs", "program_id", "reduce", "rsqrt", "sin"),
        *("sqrt", "sqrt_rn", "static_assert", "static_range", "store", "sum", "where"),
        *("zeros_like", "int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
        *("uint64", "float16", "bfloat16", "float32", "float64", "div_rn"),
    )
)
_IMPORTS = {
    "import triton.language as tl": "from triton.experimental import gluon\n"
    "from triton.experimental.gluon import language as gl",
    "from triton.language.extra import libdevice": "from triton.experimental.gluon.language.extra "
    "import libdevice",
}
_OF_HOPPER = (
    "fence_async_shared",
    "mbarrier",
    "tma",
    "warpgroup_mma",
    "warpgroup_mma_wait",
)
_OF_HOST = "from triton.experimental.gluon.nvidia.hopper import TensorDescriptor"
_TRITON = re.compile(r"^@triton\.jit\n((?:.*\n)+?)(?=\n\n|\Z)", re.M)


def rewritten(source: str, _: Compiled) -> str:
    """The program in Gluon; its kernels in Gluon stay as they are.

    Raises:
        NotConvertible: a kernel has an operation or a shape that is not known here.
    """
    layouts: set[str] = set()

    def function(found: re.Match[str]) -> str:
        node = ast.parse(found[1]).body[0]
        assert isinstance(node, ast.FunctionDef)
        text, used = _function(node)
        layouts.update(used)
        return text

    text = _TRITON.sub(function, _with_descriptors(source))
    for old, new in _IMPORTS.items():
        text = text.replace(old, new)
    if used := [name for name in _OF_HOPPER if re.search(rf"\b{name}\b", text)]:
        names = "".join(f"    {name},\n" for name in used)
        new = f"from triton.experimental.gluon.language.nvidia.hopper import (\n{names})"
        host = f"\n{_OF_HOST}" if "TensorDescriptor(" in text else ""
        text = text.replace("import language as gl", f"import language as gl\n{new}{host}", 1)
    makers = [text for name, text in functions_of("gluon_layouts").items() if name in layouts]
    paragraphs = text.split(PARAGRAPH)
    first = next(at for at, text in enumerate(paragraphs) if "@gluon." in text)
    return PARAGRAPH.join([*paragraphs[:first], *makers, *paragraphs[first:]])


def _function(node: ast.FunctionDef) -> tuple[str, set[str]]:
    """Text of a function, and names of the layouts that it asks for."""
    blocks = sizes_of(node)
    writer = _Writer(len(blocks))
    body = [writer.visit(statement) for statement in node.body]
    used: set[str] = set()
    if blocks:
        maker = "flat_layout"
        if len(blocks) > 1:
            maker = "rows_layout" if lie_in_rows(node) else "columns_layout"
        used.add(maker)
        text = f"{_LAYOUT}: gl.constexpr = {maker}({', '.join(blocks)}, gl.num_warps())"
        body.insert(_after_constants(body), ast.parse(text).body[0])
    elif writer.needs_layout:
        raise NotConvertible(f"{node.name} makes blocks of its own")
    arguments = ", ".join(map(ast.unparse, map(writer.visit, node.args.args)))
    if node.args.defaults:  # of the compiler's functions only the last parameter has one
        arguments += f"={ast.unparse(node.args.defaults[0])}"
    head = f"@gluon.jit\ndef {node.name}({arguments}):\n"
    return f"{head}{_docstring(body)}{body_text(body, _STEP)}\n", used


def _docstring(body: list[ast.stmt]) -> str:
    """It is taken out of the body."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str(text))), *_]:
            del body[0]
            return textwrap.indent(f'"""{text}"""\n', _STEP)
    return ""


def _after_constants(body: list[ast.stmt]) -> int:
    """After statements that give a constant a name, and the docstring."""
    for at, statement in enumerate(body):
        match statement:
            case ast.Assign(value=ast.Constant()) | ast.Expr(value=ast.Constant()):
                continue
            case ast.AnnAssign():
                continue
        return at
    return len(body)


class _Writer(ast.NodeTransformer):
    """Operations of Triton's as those of Gluon.

    Args:
        axes: of the kernel's block; 0 in a function that gets its blocks.
    """

    def __init__(self, axes: int) -> None:
        self._axes = axes
        self._whole: set[str] = set()  # names of values with both axes
        self.needs_layout = False

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        names = set().union(*map(names_in, node.targets))
        is_whole = self._is_whole(node.value)
        self.generic_visit(node)
        self._whole = self._whole | names if is_whole else self._whole - names
        return node

    def _is_whole(self, node: ast.expr) -> bool:
        """Whether a value has an element for each of its block, and was not reduced just now."""
        if any(is_column(each) for each in ast.walk(node)):
            return False
        made = any(is_whole_block(each) for each in ast.walk(node))
        return made or any(
            name in self._whole or OF_REDUCTION.search(name) or name == "r0_base"
            for name in names_in(node)
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "tl":
            if node.attr not in _SAME:
                raise NotConvertible(f"Gluon has no tl.{node.attr}")
            return ast.Attribute(ast.Name("gl", ast.Load()), node.attr, node.ctx)
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        axis = axis_of(node)
        if axis is None:
            self.generic_visit(node)
            return node
        assert isinstance(node.value, ast.Call)
        first, last = map(ast.unparse, node.value.args)
        if self._axes == 1:
            return _expression(f"gl.arange({first}, {last}, layout={_LAYOUT})")
        of, place = f"gl.SliceLayout({1 - axis}, {_LAYOUT})", (":, None", "None, :")[axis]
        return _expression(f"gl.arange({first}, {last}, layout={of})[{place}]")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=name)):
                found = self._of_language(name, node)
                if found is not None:
                    return found
            case ast.Call(func=ast.Attribute(value=ast.Call() as made, attr="broadcast_to")):
                return self._full(made, [ast.unparse(size) for size in node.args])
        self.generic_visit(node)
        return node

    def _of_language(self, name: str, node: ast.Call) -> ast.expr | None:
        """None if it is the same in both."""
        match name, node.args:
            case "range", arguments:
                return _expression(f"range({', '.join(map(self._text, arguments))})")
            case "sigmoid", [value]:
                return _expression(f"1.0 / (1.0 + gl.exp(-({self._text(value)})))")
            case "broadcast_to", [value, ast.List(elts=sizes)]:
                shape = f"[{', '.join(map(ast.unparse, sizes))}]"
                if len(sizes) < 2 or self._is_whole(value):
                    return self.visit(value)
                return self._spread(value, shape, _LAYOUT)
            case "broadcast_to", [value, ast.Attribute(value=ast.Name(id=like), attr="shape")]:
                return self._spread(value, f"{like}.shape", f"{like}.type.layout")
            case (("full" | "zeros"), [ast.List(elts=sizes), *_]):
                return self._full(node, [ast.unparse(size) for size in sizes])
            case "full", [ast.Attribute(value=ast.Name(id=like), attr="shape"), value, dtype]:
                given = f"{like}.shape, {self._text(value)}, {self._text(dtype)}"
                return _expression(f"gl.full({given}, layout={like}.type.layout)")
            case (("arange" | "dot" | "reshape" | "cumsum" | "sort"), _):
                raise NotConvertible(f"tl.{name} in {ast.unparse(node)[:60]}")
        return None

    def _spread(self, value: ast.expr, shape: str, layout: str) -> ast.expr:
        written = self._text(value)
        all_of_it = f"gl.full({shape}, True, gl.int1, layout={layout})"
        return _expression(f"gl.where({all_of_it}, {written}, {written})")

    def _full(self, node: ast.Call, sizes: list[str]) -> ast.expr:
        """A block of one value."""
        name = ast.unparse(node.func)
        value, dtype = ("0", node.args[1]) if name == "tl.zeros" else self._value(node)
        if len(sizes) != self._axes:
            self.needs_layout = True
        shape = f"[{', '.join(sizes)}]"
        return _expression(f"gl.full({shape}, {value}, {self._text(dtype)}, layout={_LAYOUT})")

    def _value(self, node: ast.Call) -> tuple[str, ast.expr]:
        match node:
            case ast.Call(func=ast.Attribute(attr="full"), args=[_, value, dtype]):
                return self._text(value), dtype
        raise NotConvertible(f"a block of the values {ast.unparse(node)[:60]}")

    def _text(self, node: ast.expr) -> str:
        return ast.unparse(self.visit(node))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _product(product: Matrices) -> tuple[Launch]:
    kernel = functions_of("gluon_product")
    return product_launch(product, kernel, columns=(32, 256, 128), depth=(32, 64, 32))


def _tiled_product(product: Matrices, how: How = How.PACKED) -> tuple[Launch, ...]:
    if tuple(product.precisions) == HALF:
        return (_tiled_launch(product),) if _has_tiles(product) else _product(product)
    return _packed_launches(product, how) or _product(product)


def _has_tiles(product: Matrices) -> bool:
    """Whether the accelerator reads its operands of fp16 or bf16: lines at every 16 bytes."""
    strides = (product.constants[name][1:] for name in ("A_STRIDE", "B_STRIDE"))
    fit = all(1 in pair and max(pair) % _ALIGNED == 0 for pair in strides)
    return fit and product.batch == 1


def _tiled_launch(product: Matrices) -> Launch:
    (whole,) = product_launch(product, {}, columns=(64, 256, 128), depth=(32, 64, 64))
    return replace(
        whole,
        kernel=_TILED,
        tunables={name: one for name, one in whole.tunables.items() if name != "PARTS"}
        | {"STAGES": one_of(2, 3, 4, first=3)},
        definitions={**_shared(*_OF_TILES), **functions_of("gluon_tiles")},
    )


def _shared(*names: str) -> dict[str, str]:
    kernels = functions_of("gluon_product")
    return {name: kernels[name] for name in names}


def _packed_launches(product: Matrices, how: How) -> tuple[Launch, ...]:
    """Operands are cut first, and their parts multiplied; nothing if that does not pay."""
    found = packed.both_packed(product, how, in_chunks=False)
    if not found:
        return ()
    *cuts, multiply = found
    kernels, tiles = dict(functions_of("gluon_packed")), functions_of("gluon_tiles")
    pack = kernels.pop("pack_kernel")
    # `rewritten` writes the library's functions anew in Gluon; its kernel's text is another one.
    cutting = {**_shared("side_by_side"), **library.definitions("pack_kernel"), "pack_kernel": pack}
    last = replace(
        multiply,
        kernel=_PACKED,
        constants={
            **multiply.constants,
            **_lines("A", multiply.constants["A_STRIDE"]),
            **_lines("B", multiply.constants["B_STRIDE"]),
        },
        tunables={name: one for name, one in multiply.tunables.items() if name != "num_stages"}
        | {"SUM_STEPS": one_of(1, 2, 4, 8, first=4), "STAGES": one_of(2, 3, 4, first=3)},
        definitions={
            **_shared(*_OF_TILES),
            **{name: tiles[name] for name in ("tiles_of", "read_tile")},
            **library.definitions("unscaled"),
            **kernels,
        },
    )
    return *(replace(one, definitions=cutting) for one in cuts), last


def _with_descriptors(source: str) -> str:
    """The program whose launches are given descriptors of both matrices, where tiles are read."""
    texts = {_TILED: _tiled_text, _PACKED: _packed_text}
    found = [one for one in kernel_calls(ast.parse(source)) if one.kernel in texts]
    new = {one.node.lineno: (one.node, texts[one.kernel](one)) for one in found}
    return with_lines(source, new)


def _tiled_text(call: KernelCall) -> str:
    options = {name: ast.unparse(value) for name, value in call.options.items()}
    rows, columns, depth = _elements(call.options["SHAPE"])
    a, b, *others = map(ast.unparse, call.arguments)
    sizes = {"A": (a, rows, depth, "M", "K"), "B": (b, depth, columns, "K", "N")}
    arguments = []
    for of, (name, height, width, *sides) in sizes.items():
        _, *stride = _elements(call.options[f"{of}_STRIDE"])
        block = ", ".join(options[f"BLOCK_{side}"] for side in sides)
        places = f"({height}, {width}), ({', '.join(stride)}), ({block})"
        arguments.append(f"tiles_of({name}, {places})")
    arguments += [*others, *(f"{name}={value}" for name, value in options.items())]
    return call_text(f"{_TILED}[{ast.unparse(call.grid)}](", arguments, MAX_LINE - 8)


def _packed_text(call: KernelCall) -> str:
    """The launch with descriptors of both operands' parts.

    Parts lie one below the other; elements side by side are a line of the descriptor.
    """
    options = {name: ast.unparse(value) for name, value in call.options.items()}
    precision = options.pop("INPUT_PRECISION")
    options["PARTS"] = parts = packed.parts_of(precision)
    options["PRODUCTS"] = packed.products_of(precision)
    a, b, *others = map(ast.unparse, call.arguments)
    arguments = []
    for of, name, side in (("A", a, "M"), ("B", b, "N")):
        stride = [int(one) for one in _elements(call.options[f"{of}_STRIDE"])[2:]]
        wide = max(stride)
        below = f"{parts} * {options[f'{of}_PART']}"
        shape = (below, str(wide)) if stride[1] == 1 else (str(wide), below)
        block = f"{options[f'BLOCK_{side}']}, {options['BLOCK_K']}"
        places = f"({', '.join(shape)}), ({', '.join(map(str, stride))}), ({block})"
        arguments.append(f"tiles_of({name}, {places})")
    arguments += [*others, *(f"{name}={value}" for name, value in options.items())]
    return call_text(f"{_PACKED}[{ast.unparse(call.grid)}](", arguments, MAX_LINE - 8)


def _lines(of: str, stride: object) -> dict[str, int]:
    """Lines of an operand's descriptor that a matrix takes, and a part with all its matrices."""
    assert isinstance(stride, tuple)
    part, matrix, *inside = stride
    line = max(inside)
    return {f"{of}_ROOM": (matrix or part) // line, f"{of}_PART": part // line}


def _elements(node: ast.expr) -> list[str]:
    assert isinstance(node, ast.Tuple)
    return [*map(ast.unparse, node.elts)]


GLUON = Port(
    "gluon",
    _product,
    rewritten,
    products_on=range(9, 10),
    tiled=_tiled_product,
    stretched=partial(_tiled_product, how=How.STRETCHED),
)
