"""Launches for running sums and products."""

from collections.abc import Sequence

from operators.local.templates.launch import Launch, one_of, powers
from operators.local.templates.tensors import Tensor, pointer_of


def launch(
    x: Tensor,
    mask: Tensor | None,
    out: Tensor,
    view: Sequence[int],
    *,
    product: bool,
    reverse: bool,
    exclusive: bool,
) -> Launch:
    """For the running sum or product of x, times mask, along the middle of a view.

    Args:
        x: contiguous.
        mask: of truth values, as x.
        out: as x.
        view: x as (outer, size, inner), of which the rows are outer x inner.
        product: instead of a sum.
        reverse: from the last element to the first.
        exclusive: without the element itself.
    """
    outer, size, inner = view
    rows, beside = outer * inner, inner == 1
    return Launch(
        kernel="scan_kernel",
        grid=f"(triton.cdiv({rows}, BLOCK_M),)",
        pointers=(x.pointer, pointer_of(mask), out.pointer),
        constants={
            "VIEW": (rows, size, inner),
            "PRODUCT": product,
            "REVERSE": reverse,
            "EXCLUSIVE": exclusive,
        },
        tunables={
            "BLOCK_M": powers(1, 8, rows, 1) if beside else powers(8, 64, rows, 32),
            "BLOCK_K": powers(256, 8192, size, 2048) if beside else powers(8, 64, size, 32),
            "num_warps": one_of(1, 2, 4, 8, 16, first=4),
            "num_stages": one_of(1, 2, 3, first=2),
        },
    )
