"""Launches for products of float32 matrices, of operands that are cut into parts beforehand."""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass

from operators.local.inductor.blocks import Blocks
from operators.local.templates.launch import Launch, one_of, powers, room
from operators.local.templates.operations.matrices import How, Matrices
from operators.local.templates.tensors import HALF

NUMBER_OF_PARTS = {"fp16": 1, "fp16x2": 2, "fp16x3": 2, "bf16x6": 3}
"""Of a float32, by the precision of products."""
_PRODUCTS = {"fp16": 1, "fp16x2": 2, "fp16x3": 3, "bf16x6": 6}
"""Of parts, for one of numbers."""
EXACT = ("fp16x3", "bf16x6")
"""Parts of a float32, and how many products of parts stand for one."""
_ROUNDED = "fp16"  # to 11 bits, as tf32
_STRETCHED = "fp16x2"
# Sums of random signs are off by 5e-6 of the result then, at any depth, and what is allowed grows
# with the depth (`evolve.worker.correctness.tolerance`): 4.8e-6 for 1024, 1.2e-5 for 8192. Products
# with weights are right from 1024 on; of two sparse inputs few products count, and their errors
# hardly cancel.
_MIN_STRETCHED = {How.STRETCHED: 1024, How.LONG: 8192, How.WIDE: 8192}
_LINES, _DEPTH = 256, 64  # the largest block: parts have room for whole ones
_BLOCK = 4096  # elements that are cut at once
_MIN_DEPTH = 64
_MIN_REUSE = 256
_TILE = 128  # that programs begin with
_MAX_NARROW = 256  # columns
_MIN_NARROW_DEPTH = 1024
_ACROSS = 64  # lines of a program if they lie across: 128 bytes of parts are stored at a time
_CHUNK = 512  # elements of such a line, for each of which there is a program if lines are few
_MAX_CHUNKS = 32
_PROGRAMS_EACH = 8  # for each multiprocessor; with fewer it waits for memory
_FEW_STEPS = 2  # blocks of the depth: stores take longer than products, for which small blocks do


def launches(product: Matrices, how: How = How.PACKED) -> tuple[Launch, ...]:
    """With both operands cut, or one of a narrow product; nothing if neither pays.

    fp16 and bf16 are multiplied as they are.
    """
    if tuple(product.precisions) == HALF:
        return ()
    if found := both_packed(product, how):
        return found
    rows, columns, _ = product.shape
    narrow = product.turned if rows < columns else product
    return _one(narrow) if _is_narrow(narrow) else ()


def both_packed(
    product: Matrices, how: How = How.PACKED, *, in_chunks: bool = True
) -> tuple[Launch, ...]:
    """Of float32: the kernels that split both operands, and the one that multiplies their parts.

    Empty if that does not pay. `in_chunks` says that several programs may share a line.
    """
    if not _pays(product):
        return ()
    *_, bias, out = product.pointers
    rows, columns, depth = product.shape
    precisions = known(product.precisions, depth, how)
    left, right = _Operand.left(product), _Operand.right(product)
    multiply = Launch(
        kernel="matmul_packed_kernel",
        grid=f"({product.grid},)",
        pointers=(left.parts, right.parts, left.exponents, right.exponents, bias, out),
        constants={
            **product.constants,
            "SHAPE": (rows, columns, left.room[1]),
            "A_STRIDE": left.part_stride,
            "B_STRIDE": right.part_stride,
        },
        tunables=_tunables(product, precisions, narrowest=64, GROUP_M=one_of(1, 4, 8, first=8)),
        after=(deletion(left.parts, right.parts, left.exponents, right.exponents),),
    )
    count = product.multiprocessors if in_chunks else 0
    return *left.launches(count), *right.launches(count), multiply


def known(precisions: Sequence[str], depth: int, how: How = How.PACKED) -> tuple[str, ...]:
    """How products of parts may be made if `tl.dot` may be so precise, the first to begin with.

    A product that begins with tf32 may begin with one part; one with that choice keeps it. Others
    begin with two products of parts if sums of `depth` products are long enough for `how`.
    """
    if "tf32" in precisions:
        return (_ROUNDED, *EXACT) if precisions[0] == "tf32" else (*EXACT, _ROUNDED)
    return (_STRETCHED, *EXACT) if how in _MIN_STRETCHED and depth >= _MIN_STRETCHED[how] else EXACT


def parts_of(precision: str) -> str:
    """The expression for how many parts a number has, as programs have it."""
    return f"{json.dumps(NUMBER_OF_PARTS)}[{precision}]"


def products_of(precision: str) -> str:
    """The same for how many products of parts stand for one."""
    return f"{json.dumps(_PRODUCTS)}[{precision}]"


def room_for_parts(name: ast.expr, size: int, like: ast.expr) -> str:
    """The same for parts of so many elements."""
    count = parts_of("INPUT_PRECISION")
    dtype = 'torch.bfloat16 if INPUT_PRECISION == "bf16x6" else torch.float16'
    place = f"device={ast.unparse(like)}.device"
    return f"{ast.unparse(name)} = torch.empty({count} * {size}, {place}, dtype={dtype})"


def deletion(*names: ast.expr) -> str:
    """A statement that gives rooms back."""
    return f"del {', '.join(map(ast.unparse, names))}"


def _pays(product: Matrices) -> bool:
    """Whether the product takes about as long as cutting its operands, or longer.

    And whether it has tiles for half of the device, since sums are not split. At 550 TFLOP/s of
    float16 and 4 TB/s, which an H200 is near to, three products take as long as cutting into two
    parts (12 bytes for each element) at 275 rows * columns / (rows + columns).
    """
    rows, columns, depth = product.shape
    if depth < _MIN_DEPTH or 2 * product.tiles(_TILE) < product.multiprocessors:
        return False
    return rows * columns >= _MIN_REUSE * (rows + columns)


def _is_narrow(product: Matrices) -> bool:
    """Whether rows are read once or twice, for columns are few, and there are enough of them."""
    rows, columns, depth = product.shape
    if product.batch != 1 or columns > _MAX_NARROW or depth < _MIN_NARROW_DEPTH:
        return False
    return 2 * -(-rows // _TILE) >= product.multiprocessors


def _one(product: Matrices) -> tuple[Launch, ...]:
    """The kernels that split `b`, which has few columns, and `a` as it is read."""
    a, _, bias, out = product.pointers
    right = _Operand.right(product)
    offered = [each for each in known(product.precisions, 0) if each != "bf16x6"]
    multiply = Launch(
        kernel="matmul_narrow_kernel",
        grid=f"({product.grid},)",
        pointers=(a, right.parts, right.exponents, bias, out),
        constants={**product.constants, "B_STRIDE": right.part_stride},
        tunables=_tunables(product, offered, narrowest=16),
        after=(deletion(right.parts, right.exponents),),
    )
    return *right.launches(product.multiprocessors), multiply


def _tunables(
    product: Matrices, precisions: Sequence[str], *, narrowest: int, **own: Blocks
) -> dict[str, Blocks]:
    """Of the kernel that multiplies; some have tunables of their own, and narrower blocks."""
    rows, columns, depth = product.shape
    is_short = depth <= _FEW_STEPS * _DEPTH
    return {
        "BLOCK_M": powers(64, _LINES, rows, 64 if is_short else 128),
        "BLOCK_N": powers(narrowest, _LINES, columns, 128),
        "BLOCK_K": powers(32, _DEPTH, _DEPTH, 64),
        **own,
        "INPUT_PRECISION": one_of(*precisions, first=precisions[0]),
        "num_warps": one_of(4, 8, first=4 if is_short else 8),
        "num_stages": one_of(2, 3, 4, first=3),
    }


@dataclass(frozen=True, slots=True)
class _Operand:
    """One side of a product: `a`, or `b` turned.

    Attributes:
        pointer: of its first element.
        name: for its parts.
        shape: lines (rows of `a`, columns of `b`) and depth.
        stride: in elements, of a matrix, a line and of the depth; the first is 0 if there is one
            matrix for the whole batch.
        batch: number of matrices of the result.
    """

    pointer: ast.expr
    name: str
    shape: tuple[int, int]
    stride: tuple[int, ...]
    batch: int

    @classmethod
    def left(cls, product: Matrices) -> "_Operand":
        """`a`."""
        return cls._first(product, "a")

    @classmethod
    def right(cls, product: Matrices) -> "_Operand":
        """`b`, which is the first one of the product turned."""
        return cls._first(product.turned, "b")

    @classmethod
    def _first(cls, product: Matrices, name: str) -> "_Operand":
        pointer, *_, out = product.pointers
        lines, _, depth = product.shape
        stride = product.constants["A_STRIDE"]
        return cls(pointer, f"{ast.unparse(out)}_{name}", (lines, depth), stride, product.batch)

    @property
    def room(self) -> tuple[int, int]:
        """Lines and depth of the parts."""
        lines, depth = self.shape
        return -(-lines // _LINES) * _LINES, -(-depth // _DEPTH) * _DEPTH

    @property
    def matrices(self) -> int:
        """How many are cut into parts."""
        return self.batch if self.stride[0] else 1

    @property
    def part_stride(self) -> tuple[int, int, int, int]:
        """Of a part, a matrix, a line and of the depth; adjacent elements stay adjacent."""
        lines, depth = self.room
        inside = (depth, 1) if self._by_depth else (1, lines)
        size = lines * depth
        return self.matrices * size, size if self.stride[0] else 0, *inside

    @property
    def parts(self) -> ast.expr:
        return ast.Name(f"{self.name}_parts", ast.Load())

    @property
    def exponents(self) -> ast.expr:
        return ast.Name(f"{self.name}_exponents", ast.Load())

    def launches(self, multiprocessors: int) -> tuple[Launch, ...]:
        """Of the kernels that cut it, for so many multiprocessors.

        Lines that lie across are read some side by side, by few programs if there are few.
        """
        programs = -(-self.shape[0] // _ACROSS) * self.matrices
        is_long = self.shape[1] >= 2 * _CHUNK
        if self._by_depth or not is_long or programs >= _PROGRAMS_EACH * multiprocessors:
            return (self._at_once(),)
        return self._in_chunks()

    def _in_chunks(self) -> tuple[Launch, Launch]:
        """Of a kernel that finds the largest elements of chunks, and one that cuts these."""
        lines, depth = self.shape
        chunk = max(_CHUNK, 1 << (-(-depth // _MAX_CHUNKS) - 1).bit_length())
        chunks = -(-depth // chunk)
        largest = ast.Name(f"{self.name}_largest", ast.Load())
        grid = f"({-(-lines // _ACROSS)}, {chunks}, {self.matrices})"
        constants: dict[str, object] = {
            "SHAPE": (*self.shape, self.room[1]),
            "STRIDE": self.stride,
            "LINES": _ACROSS,
            "DEPTH": _BLOCK // _ACROSS,
            "CHUNK": chunk,
            "num_warps": 8,
        }
        find = Launch(
            kernel="largest_chunk_kernel",
            grid=grid,
            pointers=(self.pointer, largest),
            constants=constants,
            tunables={},
            before=(room(largest, self.matrices * chunks * lines, self.pointer, "float32"),),
        )
        pack = Launch(
            kernel="pack_chunk_kernel",
            grid=grid,
            pointers=(self.pointer, largest, self.parts, self.exponents),
            constants=constants | {"PART_STRIDE": self.part_stride},
            tunables={},
            before=self._rooms,
            after=(deletion(largest),),
            shared=("INPUT_PRECISION",),
        )
        return find, pack

    @property
    def _rooms(self) -> tuple[str, ...]:
        """Statements that make room for parts and exponents."""
        return (
            room_for_parts(self.parts, self.part_stride[0], self.pointer),
            room(self.exponents, self.matrices * self.shape[0], self.pointer, "int32"),
        )

    def _at_once(self) -> Launch:
        """Of the kernel that cuts it; lines or the depth are read 128 bytes at a time or more."""
        depth = min(1024, 1 << (self.room[1] - 1).bit_length())
        block = {"LINES": _BLOCK // depth, "DEPTH": depth}
        if not self._by_depth:
            block = {"LINES": 32, "DEPTH": _BLOCK // 32}
        return Launch(
            kernel="pack_kernel",
            grid=f"(triton.cdiv({self.shape[0]}, {block['LINES']}), {self.matrices})",
            pointers=(self.pointer, self.parts, self.exponents),
            constants={
                "SHAPE": (*self.shape, self.room[1]),
                "STRIDE": self.stride,
                "PART_STRIDE": self.part_stride,
                **block,
                "num_warps": 8,
            },
            tunables={},
            before=self._rooms,
            shared=("INPUT_PRECISION",),
        )

    @property
    def _by_depth(self) -> bool:
        return self.stride[2] <= self.stride[1]
