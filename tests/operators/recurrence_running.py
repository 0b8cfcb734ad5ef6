"""Run as a script: kernels of recurrent layers, each program in a process of its own, all at once.

The interpreter runs one program after the other, so none may wait for a later one; here they share
the memory of their tensors, and wait for each other as on a device. A line of JSON for each kind of
cell says how far states are from those of torch's cells.
"""

import itertools
import json
import multiprocessing

import torch
from triton.runtime import interpreter as triton_interpreter

from operators.local.templates.kernels import recurrence
from tests.operators import interpreter
from tests.worker.decompositions_running import recurrence as expected_states

STEPS, BATCH, HIDDEN, DIRECTIONS = SHAPE = 6, 20, 20, 2
WIDTH, BLOCK_B, BLOCK_H, PARTS = 32, 16, 8, 2
GRID = 3, DIRECTIONS, 2
KERNELS = {
    "lstm": (recurrence.lstm_kernel, 4, {}),
    "gru": (recurrence.gru_kernel, 3, {}),
    "tanh": (recurrence.rnn_kernel, 1, {"IS_TANH": True}),
    "relu": (recurrence.rnn_kernel, 1, {"IS_TANH": False}),
}


def main() -> None:
    interpreter.prepare()
    torch.set_num_threads(1)
    for kind in KERNELS:
        print(json.dumps([kind, difference(kind)]), flush=True)


def difference(kind: str) -> float:
    kernel, gates, settings = KERNELS[kind]
    given = shared(STEPS, BATCH, DIRECTIONS * gates * HIDDEN)
    weight = shared(DIRECTIONS, gates * HIDDEN, HIDDEN).mul_(0.3)
    bias = shared(DIRECTIONS, gates * HIDDEN) if kind == "gru" else None
    hidden, cell = (shared(DIRECTIONS, BATCH, HIDDEN) for _ in range(2))
    states = shared(STEPS + 2, BATCH, DIRECTIONS * HIDDEN)
    arrived = torch.full((DIRECTIONS * BATCH,), 7, dtype=torch.int32).share_memory_()
    recurrence.recurrence_start_kernel[(1,)](hidden, states, arrived, SHAPE, 1024)
    own = cell if kind == "lstm" else None
    blocks = {"WIDTH": WIDTH, "BLOCK_B": BLOCK_B, "BLOCK_H": BLOCK_H, "PARTS": PARTS}
    operands = given, weight, *(one for one in (bias, own) if one is not None), states, arrived

    def program(place: tuple[int, ...]) -> None:
        builder = triton_interpreter.interpreter_builder
        set_idx, set_dim = builder.set_grid_idx, builder.set_grid_dim
        builder.set_grid_dim = lambda *_: set_dim(*GRID)
        builder.set_grid_idx = lambda *_: set_idx(*place)
        kernel[(1,)](*operands, SHAPE=SHAPE, **settings, **blocks, INPUT_PRECISION="ieee")

    # The last first: each waits for those that have not begun.
    context = multiprocessing.get_context("fork")
    places = reversed([*itertools.product(*map(range, GRID))])
    under_way = [context.Process(target=program, args=(place,)) for place in places]
    for process in under_way:
        process.start()
    for process in under_way:
        process.join()
        assert process.exitcode == 0
    expected = expected_states(given, weight, bias, hidden, own, kind)
    inner = slice(0, None) if kind == "lstm" else slice(1, -1)
    return float((states - expected)[inner].abs().max() / expected[inner].abs().max())


def shared(*shape: int) -> torch.Tensor:
    return torch.randn(shape).share_memory_()


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
