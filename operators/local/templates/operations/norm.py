"""Launches for normalisations: of rows that are held, read in a loop, or cut into parts."""

import ast
from collections.abc import Sequence

from operators.local.templates.launch import Launch, one_of, powers, room
from operators.local.templates.tensors import Tensor, pointer_of

_HELD = 8192  # elements of a block that holds rows whole
_LOOPED = 2**14  # elements of a row, from which on few rows are cut into parts
_ROWS_EACH = 2  # for each multiprocessor; with fewer, rows are cut
_MAX_ELEMENTS = 8192  # of a block that is read in a loop


def launches(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    settings: dict[str, object],
    view: Sequence[int],
    multiprocessors: int,
) -> tuple[Launch, ...]:
    """For rows of x, normalised, times weight plus bias.

    Args:
        x: contiguous.
        weight: of rows or of their channels.
        bias: as weight.
        out: as x.
        settings: AFFINE, KIND, SHARE and EPS of the kernels.
        view: x as (outer, size, inner), of which the rows are outer x inner.
        multiprocessors: of the device.
    """
    outer, size, inner = view
    rows = outer * inner
    pointers = (x.pointer, pointer_of(weight), pointer_of(bias), out.pointer)
    constants = {"VIEW": (rows, size, inner)} | settings
    width = 1 << max(size - 1, 0).bit_length()
    if rows < _ROWS_EACH * multiprocessors and size >= _LOOPED:
        return _parts(pointers, constants)
    if width <= _HELD:
        return (_held(pointers, constants, width),)
    return (_looped(pointers, constants),)


def batch_norm(
    x: Tensor,
    statistics: Sequence[Tensor],
    weight: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    shape: Sequence[int],
    eps: float,
) -> Launch:
    """For x, normalised by the known mean and variance of each channel.

    Args:
        x: contiguous; as batch x channels x area its shape is `shape`.
        statistics: mean and variance by channel.
        weight: by channel.
        bias: by channel.
        out: as x.
        shape: of x.
        eps: added to a variance.
    """
    batch, channels, area = shape
    return Launch(
        kernel="batch_norm_kernel",
        grid=f"({batch * channels} * triton.cdiv({area}, BLOCK),)",
        pointers=(
            *(tensor.pointer for tensor in (x, *statistics)),
            *(pointer_of(weight), pointer_of(bias), out.pointer),
        ),
        constants={"SHAPE": tuple(shape), "EPS": eps},
        tunables={"BLOCK": powers(128, 8192, area, 2048), "num_warps": one_of(2, 4, 8, first=4)},
    )


def _held(pointers: tuple[ast.expr, ...], constants: dict[str, object], width: int) -> Launch:
    rows, _, inner = _view(constants)
    first = max(1, 2048 // width) if inner == 1 else 32
    return Launch(
        kernel="norm_kernel",
        grid=f"(triton.cdiv({rows}, BLOCK_M),)",
        pointers=pointers,
        constants=constants | {"WIDTH": width},
        tunables={
            "BLOCK_M": powers(1, min(256, max(1, 2 * _HELD // width)), rows, first),
            "num_warps": one_of(1, 2, 4, 8, 16, first=4),
        },
    )


def _looped(pointers: tuple[ast.expr, ...], constants: dict[str, object]) -> Launch:
    rows, size, inner = _view(constants)
    beside = inner == 1
    return Launch(
        kernel="norm_looped_kernel",
        grid=f"(triton.cdiv({rows}, BLOCK_M),)",
        pointers=pointers,
        constants=constants,
        tunables={
            "BLOCK_M": powers(1, 4, rows, 1) if beside else powers(16, 128, rows, 64),
            "BLOCK_K": powers(512, _MAX_ELEMENTS, size, 2048)
            if beside
            else powers(8, 64, size, 32),
        }
        | _loop(constants),
    )


def _parts(pointers: tuple[ast.expr, ...], constants: dict[str, object]) -> tuple[Launch, ...]:
    """Sums in parts, which a second kernel joins in their order and normalises by."""
    rows, size, _ = _view(constants)
    x, weight, bias, out = pointers
    parts = ast.Name(f"{ast.unparse(out)}_parts", ast.Load())
    first = Launch(
        kernel="norm_parts_kernel",
        grid=f"({rows}, PARTS)",
        pointers=(x, parts),
        constants={name: constants[name] for name in ("VIEW", "KIND")},
        tunables={
            "PARTS": powers(4, 1024, size // 1024, 128),
            "BLOCK_K": powers(512, _MAX_ELEMENTS, size, 2048),
        }
        | _loop(constants),
        before=(room(parts, f"{2 * rows} * PARTS", x, "float32"),),
    )
    second = Launch(
        kernel="norm_apply_kernel",
        grid=f"({rows} * triton.cdiv({size}, BLOCK),)",
        pointers=(x, parts, weight, bias, out),
        constants=constants,
        tunables={"BLOCK": powers(512, _MAX_ELEMENTS, size, 2048)},
        shared=("PARTS",),
    )
    return first, second


def _loop(constants: dict[str, object]) -> dict:
    """Tunables of a kernel that reads rows in a loop."""
    passes = (1, 2) if constants["KIND"] == "layer" else (1,)
    return {
        "num_warps": one_of(4, 8, 16, first=8),
        "num_stages": one_of(1, 2, 3, first=2),
        "PASSES": one_of(*passes, first=1),
    }


def _view(constants: dict[str, object]) -> tuple[int, int, int]:
    view = constants["VIEW"]
    assert isinstance(view, tuple)
    return view
