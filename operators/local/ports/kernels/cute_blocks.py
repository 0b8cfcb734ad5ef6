"""Functions of kernels in CuTe DSL; programs get copies of those that they use.

A thread has some elements of one row of a block: a list of numbers.
"""

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator


@cute.jit
def load(pointer: cute.Tensor, at, inside, other):
    """An element, as float32 if it is narrower; the last argument outside."""
    if cutlass.const_expr(pointer.element_type.width == 16):
        value = cutlass.Float32(other)
        if inside:
            value = pointer[at].to(cutlass.Float32)
    else:
        value = pointer.element_type(other)
        if inside:
            value = pointer[at]
    return value


@cute.jit
def store(pointer: cute.Tensor, at, value, inside):
    """Nothing outside."""
    if inside:
        pointer[at] = value.to(pointer.element_type)


def choose(condition, one, other):
    """As `one if condition else other`, without a branch."""
    if isinstance(condition, bool):
        return one if condition else other
    kind = type(other if isinstance(one, float) else one)
    return kind(cutlass.select_(condition, kind(one), kind(other)))


def add(one, other):
    """For reductions."""
    return one + other


def multiply(one, other):
    """For reductions."""
    return one * other


def maximum(one, other):
    """The larger one; NaN wins, as in torch."""
    return choose((one > other) | (one != one), one, other)


def minimum(one, other):
    """The smaller one; NaN wins, as in torch."""
    return choose((one < other) | (one != one), one, other)


def places(rows, lanes, in_rows):
    """The lane and row of a thread; neighbours are in one row if `in_rows`."""
    thread, _, _ = cute.arch.thread_idx()
    return (thread % lanes, thread // lanes) if in_rows else (thread // rows, thread % rows)


@cute.jit
def across(mine, join: cutlass.Constexpr, rows, lanes, in_rows):
    """A value of all lanes of a row, always joined in the same order."""
    width = cutlass.const_expr(min(lanes, 32) if in_rows else 1)
    parts = cutlass.const_expr(lanes // width)
    if cutlass.const_expr(width > 1):
        mine = cute.arch.warp_reduction(mine, join, threads_in_group=width)
    if cutlass.const_expr(parts > 1):
        lane, row = places(rows, lanes, in_rows)
        shared = SmemAllocator().allocate_tensor(type(mine), cute.make_layout(parts * rows), 16)
        cute.arch.sync_threads()
        if lane % width == 0:
            shared[lane // width * rows + row] = mine
        cute.arch.sync_threads()
        mine = shared[row]
        for part in cutlass.range_constexpr(1, parts):
            mine = join(mine, shared[part * rows + row])
    return mine


def reduced(values, join, rows, lanes, in_rows):
    """One number of a row's elements, the same for all its threads."""
    mine = values[0]
    for value in values[1:]:
        mine = join(mine, value)
    return across(mine, join, rows, lanes, in_rows)
