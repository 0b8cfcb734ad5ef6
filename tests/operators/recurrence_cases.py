"""Recurrent layers that the compiler leaves whole, as output code has them."""

import torch

from tests.operators.output_code import case

GATES = {"lstm": 4, "gru": 3, "tanh": 1}


def layer(kind: str, batch: int, hidden: int, directions: int = 1, **options: int):
    """512 steps of one layer; options are those of `Products`."""
    gates = GATES[kind] * hidden
    arguments = {
        "gates": torch.empty(512, batch, directions * gates, device="meta"),
        "weight": torch.empty(directions, gates, hidden, device="meta"),
        "first": torch.empty(directions, batch, hidden, device="meta"),
    }
    cell = "first" if kind == "lstm" else "None"
    shape = 514, batch, directions * hidden
    stride = batch * directions * hidden, directions * hidden, 1
    lines = [
        f"buf0 = torch.ops.evolve.recurrence.default(gates, weight, None, first, {cell}, {kind!r})",
        "buf1 = buf0",
        f"assert_size_stride(buf1, {shape}, {stride}, 'recurrence')",
        "del buf0",
    ]
    return case(kind, arguments, lines, "", "buf1", **options)


RECURRENCE_CASES = [layer(kind, 10, 256, 2) for kind in GATES]
