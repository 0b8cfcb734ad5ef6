"""A product of matrices, as kernels for it are told of it."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto


class How(Enum):
    """How products are computed, if they are large enough for that."""

    PLAIN = auto()
    EVEN = auto()
    """The work is cut evenly among as many programs as a device takes at once."""
    PACKED = auto()
    """Operands are cut into parts beforehand, of which three products or more are added."""
    STRETCHED = auto()
    """The same, but long sums begin with two products of parts."""
    LONG = auto()
    """The same, but only sums so long that the judge accepts them of two inputs too."""
    WIDE = auto()
    """`LONG`, and outputs of convolutions of few filters are side by side."""

    @property
    def is_packed(self) -> bool:
        """Whether operands are cut into parts beforehand."""
        return self not in (How.PLAIN, How.EVEN)


@dataclass(frozen=True, slots=True)
class Matrices:
    """out = a @ b + bias, for every matrix of a batch.

    Attributes:
        pointers: of a, b, bias and out; that of bias is None if there is none.
        constants: by their names in `matmul_kernel`: SHAPE is rows, columns and depth; A_STRIDE,
            B_STRIDE, BIAS_STRIDE and OUT_STRIDE are those of a matrix, a row and a column, in
            elements, 0 if the same is read again.
        batch: number of matrices of the result.
        precisions: of `tl.dot`, the default first.
        multiprocessors: of the device.
    """

    pointers: tuple[ast.expr, ...]
    constants: Mapping[str, tuple[int, ...]]
    batch: int
    precisions: Sequence[str]
    multiprocessors: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and depth."""
        rows, columns, depth = self.constants["SHAPE"]
        return rows, columns, depth

    @property
    def grid(self) -> str:
        """The number of tiles of all results, an expression over the sides of a tile."""
        rows, columns, _ = self.shape
        tiles = f"triton.cdiv({rows}, BLOCK_M) * triton.cdiv({columns}, BLOCK_N)"
        return tiles if self.batch == 1 else f"{self.batch} * {tiles}"

    @property
    def turned(self) -> "Matrices":
        """The same product as out' = b' @ a' + bias'."""
        a, b, bias, out = self.pointers
        rows, columns, depth = self.shape
        constants = {
            "SHAPE": (columns, rows, depth),
            "A_STRIDE": self._turned_stride("B_STRIDE"),
            "B_STRIDE": self._turned_stride("A_STRIDE"),
            "BIAS_STRIDE": self._turned_stride("BIAS_STRIDE"),
            "OUT_STRIDE": self._turned_stride("OUT_STRIDE"),
        }
        return replace(self, pointers=(b, a, bias, out), constants=constants)

    def only(self, *names: str) -> dict[str, tuple[int, ...]]:
        """Constants of these names."""
        return {name: self.constants[name] for name in names}

    def tiles(self, side: int) -> int:
        """The number of square tiles of all results; the side is in elements."""
        rows, columns, _ = self.shape
        return self.batch * -(-rows // side) * -(-columns // side)

    def _turned_stride(self, name: str) -> tuple[int, ...]:
        matrix, row, column = self.constants[name]
        return matrix, column, row
