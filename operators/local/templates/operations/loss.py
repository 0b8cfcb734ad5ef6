"""Launches for losses: sums over all elements of a program's own functions of an element."""

import ast
import math
import re
import textwrap
from collections.abc import Sequence

from operators.local.templates import library
from operators.local.templates.launch import Launch, one_of, powers, room
from operators.local.templates.tensors import Tensor, merged, pointer_of

_OWN = re.compile(r"\bloss_(terms?|outcome|parts_kernel|rows_kernel)\b")


def launches(
    tensors: Sequence[Tensor | None],
    out: Tensor,
    shape: Sequence[int],
    term: str,
    outcome: str,
    scale: float,
    known: dict[str, int],
) -> tuple[Launch, ...]:
    """For the sum of terms over a shape, or of outcomes of rows of it, times a scale.

    Args:
        tensors: a, b and c, each as large as the shape or broadcast to it.
        out: one element.
        shape: of the terms.
        term: statements of a function of a, b and c that returns a term, or three of them.
        outcome: statements of a function of a row's sums; empty if terms are summed at once.
        scale: of the sum.
        known: numbers of such texts, to which a new one is added.
    """
    first = next(tensor for tensor in tensors if tensor is not None)
    parts = ast.Name(f"{ast.unparse(out.pointer)}_parts", ast.Load())
    rows, columns, strides = _by_rows(tensors, shape, is_flat=not outcome)
    kernel = "loss_rows_kernel" if outcome else "loss_parts_kernel"
    number = known.setdefault(f"{term}\n\n{outcome}", len(known) + 1)
    definitions = _definitions(kernel, term, outcome, f"loss_{number}" if number > 1 else "loss")
    size = columns if outcome else rows * columns
    return (
        Launch(
            kernel=list(definitions)[-1],
            grid="(PARTS,)",
            pointers=(*map(pointer_of, tensors), parts),
            constants={"SHAPE": (rows, columns)}
            | {f"{name}_STRIDE": stride for name, stride in zip("ABC", strides, strict=True)},
            tunables={
                "PARTS": powers(64, 4096, rows if outcome else size // 256, 1024),
                "BLOCK": powers(256, 8192, size, 2048),
                "num_warps": one_of(2, 4, 8, 16, first=8),
                "num_stages": one_of(1, 2, 3, first=2),
            },
            before=(room(parts, "PARTS", first.pointer, "float32"),),
            definitions=definitions,
        ),
        Launch(
            kernel="loss_kernel",
            grid="(1,)",
            pointers=(parts, out.pointer),
            constants={"SCALE": scale},
            tunables={},
            shared=("PARTS",),
        ),
    )


def cross_entropy(
    x: Tensor, target: Tensor, out: Tensor, view: Sequence[int], ignored: int
) -> Launch:
    """For each row's cross-entropy.

    Args:
        x: contiguous.
        target: the class of each row.
        out: as target.
        view: x as (outer, classes, inner), of which the rows are outer x inner.
        ignored: a class of rows whose loss is 0.
    """
    outer, size, inner = view
    rows, beside = outer * inner, inner == 1
    return Launch(
        kernel="cross_entropy_kernel",
        grid=f"(triton.cdiv({rows}, BLOCK_M),)",
        pointers=(x.pointer, target.pointer, out.pointer),
        constants={"VIEW": (rows, size, inner), "IGNORED": ignored},
        tunables={
            "BLOCK_M": powers(1, 16, rows, 1) if beside else powers(16, 128, rows, 64),
            "BLOCK_K": powers(256, 8192, size, 2048) if beside else powers(4, 64, size, 16),
            "num_warps": one_of(1, 2, 4, 8, 16, first=8),
            "num_stages": one_of(1, 2, 3, first=2),
        },
    )


def _by_rows(
    tensors: Sequence[Tensor | None], shape: Sequence[int], *, is_flat: bool
) -> tuple[int, int, list[tuple[int, int]]]:
    """Rows, columns, and the strides of tensors by them; one row if none is broadcast."""
    rows, columns = math.prod(shape[:-1]), math.prod(shape[-1:])
    known = [tensor for tensor in tensors if tensor is not None]
    if is_flat and all(math.prod(tensor.shape) == rows * columns for tensor in known):
        return 1, rows * columns, [(0, 1 if tensor else 0) for tensor in tensors]
    strides = []
    for tensor in tensors:
        if tensor is None:
            strides.append((0, 0))
            continue
        sizes, _ = merged(tensor, len(shape))
        beside = 1 if sizes[-1:] == (columns,) and columns > 1 else 0
        has_rows = math.prod(sizes[:-1]) == rows and rows > 1
        strides.append(((columns if beside else 1) if has_rows else 0, beside))
    return rows, columns, strides


def _definitions(kernel: str, term: str, outcome: str, name: str) -> dict[str, str]:
    """The kernel with the functions that it calls, those of the program in their place."""
    found = library.definitions(kernel)
    own = {"loss_terms": term, "loss_outcome": outcome} if outcome else {"loss_term": term}
    for function, body in own.items():
        text = textwrap.indent(body, "    ")
        found[function] = f"@triton.jit\ndef {function}(a, b, c):\n{text}"
    return {
        _OWN.sub(rf"{name}_\1", key): _OWN.sub(rf"{name}_\1", text) for key, text in found.items()
    }
