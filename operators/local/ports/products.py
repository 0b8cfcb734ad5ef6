"""The launch of a product of matrices, which languages begin with alike."""

from collections.abc import Mapping
from dataclasses import replace

from operators.local.templates.launch import Launch, one_of, powers
from operators.local.templates.operations.matrices import Matrices
from operators.local.templates.tensors import HALF

NAME = "product_kernel"
STAND_IN: Mapping[str, str] = {
    NAME: f'''@triton.jit
def {NAME}(a_ptr, b_ptr, bias_ptr, out_ptr):
    """SHAPE is (rows, columns, depth)."""'''
}
"""In the place of a kernel that is not Triton, until its program is rewritten."""


def product_launch(
    product: Matrices,
    definitions: Mapping[str, str],
    columns: tuple[int, int, int],
    depth: tuple[int, int, int],
    height: int = 128,
) -> tuple[Launch]:
    """One launch of the kernel `NAME` for the whole product.

    Args:
        product: Its shape, precisions and operands.
        definitions: Of the kernel, by name.
        columns: Least, largest and first width of a block.
        depth: The same of the terms that are read at once.
        height: First height of a block.
    """
    rows, all_columns, all_terms = product.shape
    parts = (2, 3) if "tf32" in product.precisions else (3, 2)
    is_half = tuple(product.precisions) == HALF
    launch = Launch(
        kernel=NAME,
        grid=f"({product.grid},)",
        pointers=product.pointers,
        constants=dict(product.constants),
        tunables={
            "BLOCK_M": powers(64, 128, rows, height),
            "BLOCK_N": powers(*columns[:2], all_columns, columns[2]),
            "BLOCK_K": powers(*depth[:2], all_terms, depth[2]),
            "GROUP_M": one_of(1, 8, first=8),
            "PARTS": one_of(1, first=1) if is_half else one_of(*parts, first=parts[0]),
            "num_warps": one_of(4, 8, first=8),
        },
        definitions=definitions,
    )
    return (launch,)


def batched_launch(
    product: Matrices,
    columns: tuple[int, int, int],
    depth: tuple[int, int, int],
    height: int = 128,
) -> tuple[Launch]:
    """The same of `STAND_IN`, with the constant BATCH: the number of matrices."""
    (launch,) = product_launch(product, STAND_IN, columns, depth, height)
    return (replace(launch, constants={**launch.constants, "BATCH": product.batch}),)
