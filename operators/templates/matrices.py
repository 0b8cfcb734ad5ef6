"""What a product of matrices is launched with, whichever kernel does it."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Matrices:
    """out = a @ b + bias.

    Attributes:
        pointers: of a, b, bias and out.
        constants: shape (rows, columns, depth) and strides (batch, row, column), as
            `matmul_kernel` has them.
        batch: number of matrices of the result.
        precisions: what `tl.dot` may make of operands as they are, the first to begin with.
        multiprocessors: of the device.
    """

    pointers: tuple[ast.expr, ...]
    constants: Mapping[str, tuple[int, ...]]
    batch: int
    precisions: tuple[str, ...]
    multiprocessors: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and depth."""
        rows, columns, depth = self.constants["SHAPE"]
        return rows, columns, depth

    @property
    def grid(self) -> str:
        """The number of tiles, an expression over the sides of one."""
        rows, columns, _ = self.shape
        tiles = f"triton.cdiv({rows}, BLOCK_M) * triton.cdiv({columns}, BLOCK_N)"
        return tiles if self.batch == 1 else f"{self.batch} * {tiles}"

    @property
    def turned(self) -> "Matrices":
        """The same as out' = b' @ a' + bias'."""
        a, b, bias, out = self.pointers
        rows, columns, depth = self.shape

        def stride(name: str) -> tuple[int, ...]:
            batch, row, column = self.constants[name]
            return batch, column, row

        constants = {
            "SHAPE": (columns, rows, depth),
            "A_STRIDE": stride("B_STRIDE"),
            "B_STRIDE": stride("A_STRIDE"),
            "BIAS_STRIDE": stride("BIAS_STRIDE"),
            "OUT_STRIDE": stride("OUT_STRIDE"),
        }
        return replace(self, pointers=(b, a, bias, out), constants=constants)

    def only(self, *names: str) -> dict[str, tuple[int, ...]]:
        """Constants of these names."""
        return {name: self.constants[name] for name in names}

    def tiles(self, side: int) -> int:
        """How many tiles there are of sides of that length."""
        rows, columns, _ = self.shape
        return self.batch * -(-rows // side) * -(-columns // side)
