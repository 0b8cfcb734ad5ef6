"""Recurrent layers: a cell that takes its own output of the step before.

SHAPE is (STEPS, BATCH, HIDDEN, DIRECTIONS). States are (STEPS + 2) x BATCH x (DIRECTIONS * HIDDEN):
rows 1 to STEPS are the steps' outputs, in order. Beyond the end where a direction begins, row 0 or
the last, lies its state before the first step; beyond the end where it is done, which no other
needs, goes the last cell of an LSTM. The inputs' part of the gates is known for all steps: STEPS x
BATCH x DIRECTIONS x (GATES * HIDDEN).

A program has BLOCK_H units of one direction for BLOCK_B samples, and the weights of these in
registers throughout, rows of WIDTH at most, of which each warp has a part. After each step the
programs of a direction wait for each other, as persistent kernels of RNNs do (Diamos et al.,
"Persistent RNNs: Stashing Recurrent Weights On-Chip", 2016), so all of them have to be under way at
once: there may be no more than multiprocessors.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def recurrence_start_kernel(
    hidden_ptr, states_ptr, arrived_ptr, SHAPE: tl.constexpr, BLOCK: tl.constexpr
):
    """The states before the first step go to their places, and no program has arrived."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < SHAPE[3] * SHAPE[1] * SHAPE[2]
    direction = index // (SHAPE[1] * SHAPE[2])
    sample, unit = index // SHAPE[2] % SHAPE[1], index % SHAPE[2]
    row = direction.to(tl.int64) * (SHAPE[0] + 1)
    place = ((row * SHAPE[1] + sample) * SHAPE[3] + direction) * SHAPE[2] + unit
    tl.store(states_ptr + place, tl.load(hidden_ptr + index, inside), inside)
    tl.store(arrived_ptr + index, index * 0, index < SHAPE[3] * SHAPE[1])


@triton.jit
def own_units(SHAPE: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr):
    """Samples and units of a program, and which of its block exist."""
    samples = (tl.program_id(2) * BLOCK_B + tl.arange(0, BLOCK_B))[:, None]
    units = (tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :]
    return samples, units, (samples < SHAPE[1]) & (units < SHAPE[2])


@triton.jit
def row_inputs(WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Partial sums of a unit, PARTS x (WIDTH // PARTS): each part is a warp's."""
    part = tl.arange(0, PARTS)[:, None] * (WIDTH // PARTS)
    return part + tl.arange(0, WIDTH // PARTS)[None, :]


@triton.jit
def weights_of(
    weight_ptr,
    SHAPE: tl.constexpr,
    GATES: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """Of own units, whose gates lie side by side in SLOTS: parts x inputs x (units * SLOTS)."""
    inputs = row_inputs(WIDTH, PARTS)[:, :, None]
    slots = tl.arange(0, BLOCK_H * SLOTS)[None, None, :]
    unit, gate = tl.program_id(0) * BLOCK_H + slots // SLOTS, slots % SLOTS
    line = (tl.program_id(1) * GATES + gate) * SHAPE[2] + unit
    inside = (inputs < SHAPE[2]) & (unit < SHAPE[2]) & (gate < GATES)
    return tl.load(weight_ptr + line * SHAPE[2] + inputs, inside, other=0.0)


@triton.jit
def biases_of(bias_ptr, units, gate, SHAPE: tl.constexpr, GATES: tl.constexpr):
    """For one gate of units of this direction; zeros if there is no bias."""
    value = (units * 0).to(tl.float32)
    if bias_ptr is not None:
        place = bias_ptr + (tl.program_id(1) * GATES + gate) * SHAPE[2] + units
        value = tl.load(place, units < SHAPE[2], other=0.0)
    return value


@triton.jit
def gates_at(gates_ptr, samples, units, row, SHAPE: tl.constexpr, GATES: tl.constexpr):
    """Where the inputs of the first gate lie for a row of states; the next gate's are HIDDEN on."""
    line = ((row - 1) * SHAPE[1] + samples) * SHAPE[3] + tl.program_id(1)
    return gates_ptr + line * (GATES * SHAPE[2]) + units


@triton.jit
def states_at(states_ptr, samples, units, row, SHAPE: tl.constexpr):
    """Where in a row of states this direction's lie."""
    line = (row * SHAPE[1] + samples) * SHAPE[3] + tl.program_id(1)
    return states_ptr + line * SHAPE[2] + units


@triton.jit
def row_of(step, SHAPE: tl.constexpr):
    """Of states after so many steps of this direction."""
    direction = tl.program_id(1).to(tl.int64)
    return direction * (SHAPE[0] + 1) + step * (1 - 2 * direction)


@triton.jit
def sums_after(
    states_ptr,
    arrived_ptr,
    weights,
    samples,
    step,
    SHAPE: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Whole states after so many steps times weights, once every program has given its part."""
    group = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    while tl.atomic_add(arrived_ptr + group, 0, sem="acquire") < step * tl.num_programs(0):
        pass
    inputs, lines = row_inputs(WIDTH, PARTS)[:, None, :], samples[None, :, :]
    place = states_at(states_ptr, lines, inputs, row_of(step, SHAPE), SHAPE)
    inside = (lines < SHAPE[1]) & (inputs < SHAPE[2])
    # From the L2 cache: a multiprocessor's own does not see the writes of others.
    states = tl.load(place, inside, other=0.0, cache_modifier=".cg")
    return tl.sum(tl.dot(states, weights, input_precision=INPUT_PRECISION), 0)


@triton.jit
def apart(sums, samples, units):
    """Four gates that lie side by side."""
    pairs = tl.reshape(sums, [samples.shape[0], units.shape[1], 2, 2])
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def give_state(states_ptr, arrived_ptr, samples, units, state, step, own, SHAPE: tl.constexpr):
    """Store own units' state after so many steps, and say so."""
    tl.store(states_at(states_ptr, samples, units, row_of(step, SHAPE), SHAPE), state, own)
    tl.debug_barrier()  # all threads have stored before one says so
    group = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    tl.atomic_add(arrived_ptr + group, 1, sem="release")


@triton.jit
def logistic(x):
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + libdevice.exp(-x))


# In the kernels a load that is begun a step ahead, as pipelining does, would come too early.


@triton.jit
def lstm_kernel(
    gates_ptr,
    weight_ptr,
    cell_ptr,
    states_ptr,
    arrived_ptr,
    SHAPE: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PARTS: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """All steps of an LSTM, gates in torch's order; biases are in the inputs' sums."""
    samples, units, own = own_units(SHAPE, BLOCK_B, BLOCK_H)
    weights = weights_of(weight_ptr, SHAPE, 4, 4, WIDTH, PARTS, BLOCK_H)
    line = tl.program_id(1) * SHAPE[1] + samples
    cell = tl.load(cell_ptr + line * SHAPE[2] + units, own, other=0.0)
    for step in tl.range(0, SHAPE[0], num_stages=1):
        gates = gates_at(gates_ptr, samples, units, row_of(step + 1, SHAPE), SHAPE, 4)
        x_in = tl.load(gates, own, other=0.0)
        x_forget = tl.load(gates + SHAPE[2], own, other=0.0)
        x_cell = tl.load(gates + 2 * SHAPE[2], own, other=0.0)
        x_out = tl.load(gates + 3 * SHAPE[2], own, other=0.0)
        sums = sums_after(
            states_ptr, arrived_ptr, weights, samples, step, SHAPE, WIDTH, PARTS, INPUT_PRECISION
        )
        h_in, h_forget, h_cell, h_out = apart(sums, samples, units)
        new = logistic(x_in + h_in) * libdevice.tanh(x_cell + h_cell)
        cell = logistic(x_forget + h_forget) * cell + new
        state = logistic(x_out + h_out) * libdevice.tanh(cell)
        give_state(states_ptr, arrived_ptr, samples, units, state, step + 1, own, SHAPE)
    last = row_of(SHAPE[0] + 1, SHAPE)
    tl.store(states_at(states_ptr, samples, units, last, SHAPE), cell, own)


@triton.jit
def gru_kernel(
    gates_ptr,
    weight_ptr,
    bias_ptr,
    states_ptr,
    arrived_ptr,
    SHAPE: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PARTS: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """All steps of a GRU, gates in torch's order, with the biases of the state."""
    samples, units, own = own_units(SHAPE, BLOCK_B, BLOCK_H)
    weights = weights_of(weight_ptr, SHAPE, 3, 4, WIDTH, PARTS, BLOCK_H)
    b_reset = biases_of(bias_ptr, units, 0, SHAPE, 3)
    b_update = biases_of(bias_ptr, units, 1, SHAPE, 3)
    b_new = biases_of(bias_ptr, units, 2, SHAPE, 3)
    state = tl.load(states_at(states_ptr, samples, units, row_of(0, SHAPE), SHAPE), own, other=0.0)
    for step in tl.range(0, SHAPE[0], num_stages=1):
        gates = gates_at(gates_ptr, samples, units, row_of(step + 1, SHAPE), SHAPE, 3)
        x_reset = tl.load(gates, own, other=0.0) + b_reset
        x_update = tl.load(gates + SHAPE[2], own, other=0.0) + b_update
        x_new = tl.load(gates + 2 * SHAPE[2], own, other=0.0)
        sums = sums_after(
            states_ptr, arrived_ptr, weights, samples, step, SHAPE, WIDTH, PARTS, INPUT_PRECISION
        )
        h_reset, h_update, h_new, _ = apart(sums, samples, units)
        new = libdevice.tanh(x_new + logistic(x_reset + h_reset) * (h_new + b_new))
        state = new + logistic(x_update + h_update) * (state - new)
        give_state(states_ptr, arrived_ptr, samples, units, state, step + 1, own, SHAPE)


@triton.jit
def rnn_kernel(
    gates_ptr,
    weight_ptr,
    states_ptr,
    arrived_ptr,
    SHAPE: tl.constexpr,
    IS_TANH: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PARTS: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """All steps of a simple layer: the tanh of a sum, or its positive part."""
    samples, units, own = own_units(SHAPE, BLOCK_B, BLOCK_H)
    weights = weights_of(weight_ptr, SHAPE, 1, 1, WIDTH, PARTS, BLOCK_H)
    for step in tl.range(0, SHAPE[0], num_stages=1):
        gates = gates_at(gates_ptr, samples, units, row_of(step + 1, SHAPE), SHAPE, 1)
        x = tl.load(gates, own, other=0.0)
        x += sums_after(
            states_ptr, arrived_ptr, weights, samples, step, SHAPE, WIDTH, PARTS, INPUT_PRECISION
        )
        x = libdevice.tanh(x) if IS_TANH else tl.where(x < 0, 0.0, x)
        give_state(states_ptr, arrived_ptr, samples, units, x, step + 1, own, SHAPE)
