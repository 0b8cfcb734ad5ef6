"""Launches for recurrent layers."""

import ast
from collections.abc import Mapping, Sequence

from operators.local.templates.launch import Launch, one_of, powers, room
from operators.local.templates.tensors import Tensor, pointer_of

_KERNELS: Mapping[str, tuple[str, int, Mapping[str, object]]] = {
    "lstm": ("lstm_kernel", 4, {}),
    "gru": ("gru_kernel", 4, {}),
    "tanh": ("rnn_kernel", 1, {"IS_TANH": True}),
    "relu": ("rnn_kernel", 1, {"IS_TANH": False}),
}
"""By kind of cell: the kernel, places for a unit's gates, and its settings."""

_MAX_HELD = 2**14  # weights of a program, of 6 bytes each where they are cut in three
_MAX_SAMPLES = 64  # of a program
_MIN_SUM = 16  # that `tl.dot` takes
_BLOCK = 1024


def launches(
    operands: Sequence[Tensor | None],
    out: Tensor,
    kind: str,
    precisions: Sequence[str],
    multiprocessors: int,
) -> tuple[Launch, ...] | None:
    """For the states of a layer, step by step; None if a device cannot hold its weights at once.

    Args:
        operands: the inputs' part of the gates, the weight and the bias of a state, the first state
            and the first cell, as `evolve::recurrence` has them, in float32.
        out: states, (steps + 2) x batch x (directions * hidden).
        kind: lstm, gru, tanh or relu.
        precisions: of `tl.dot`, the default first.
        multiprocessors: of the device.
    """
    gates, weight, bias, hidden, cell = operands
    assert gates is not None and weight is not None and hidden is not None
    directions, batch, size = hidden.shape
    shape = (gates.shape[0], batch, size, directions)
    kernel, count, settings = _KERNELS[kind]
    own = {"lstm": (cell,), "gru": (bias,)}.get(kind, ())
    width = max(16, 1 << max(size - 1, 0).bit_length())
    samples = min(_MAX_SAMPLES, max(16, 1 << max(batch - 1, 0).bit_length()))
    blocks = -(-batch // samples)
    held = count * width  # by a unit
    units = [
        1 << k
        for k in range(2, width.bit_length())
        if held << k <= _MAX_HELD and -(-size >> k) * directions * blocks <= multiprocessors
    ]
    if not units:
        return None
    arrived = ast.Name(f"{ast.unparse(out.pointer)}_arrived", ast.Load())
    start = Launch(
        kernel="recurrence_start_kernel",
        grid=f"({-(-directions * batch * size // _BLOCK)},)",
        pointers=(hidden.pointer, out.pointer, arrived),
        constants={"SHAPE": shape, "BLOCK": _BLOCK},
        tunables={},
        before=(room(arrived, directions * batch, gates.pointer, "int32"),),
    )
    steps = Launch(
        kernel=kernel,
        grid=f"(triton.cdiv({size}, BLOCK_H), {directions}, {blocks})",
        pointers=(
            *map(pointer_of, (gates, weight, *own)),
            *(out.pointer, arrived),
        ),
        constants={"SHAPE": shape, **settings, "WIDTH": width, "BLOCK_B": samples},
        tunables={
            "PARTS": powers(1, 16, width // _MIN_SUM, 8),
            "BLOCK_H": one_of(*units, first=units[-1]),
            "INPUT_PRECISION": one_of(*precisions, first=precisions[0]),
            "num_warps": one_of(4, 8, first=8),
        },
    )
    return start, steps
