"""Functions of kernels in CuTe DSL; programs get copies of those that they use.

A block of (rows, columns) elements is spread over rows * lanes threads: a thread has the elements
lane, lane + lanes, lane + 2 * lanes and so on of one row, as a list of columns // lanes numbers.
"""

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator


@cute.jit
def load(pointer: cute.Tensor, at, inside, other):
    """Reads the element at index `at` if `inside` is true, else gives `other`.

    Float16 and bfloat16 become float32.
    """
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
    """Writes a value, in the tensor's type, to the index `at` if `inside` is true."""
    if inside:
        pointer[at] = value.to(pointer.element_type)


def where(condition, one, other):
    """Gives `one` if the condition is true, else `other`, without a branch; both are computed."""
    if isinstance(condition, bool):
        return one if condition else other
    kind = type(other if isinstance(one, float) else one)
    return kind(cutlass.select_(condition, kind(one), kind(other)))


def add(one, other):
    """The sum of two numbers; combines the elements of a reduction."""
    return one + other


def multiply(one, other):
    """The product of two numbers; combines the elements of a reduction."""
    return one * other


def maximum(one, other):
    """The larger of two numbers; NaN if one of them is, as in torch."""
    return where((one > other) | (one != one), one, other)


def minimum(one, other):
    """The smaller of two numbers; NaN if one of them is, as in torch."""
    return where((one < other) | (one != one), one, other)


def lane_and_row(rows, lanes, in_rows):
    """A thread's lane, from 0 to lanes - 1, and its row, from 0 to rows - 1.

    Threads with neighbouring numbers are lanes of one row if `in_rows` is true, else one lane of
    neighbouring rows.
    """
    thread, _, _ = cute.arch.thread_idx()
    return (thread % lanes, thread // lanes) if in_rows else (thread // rows, thread % rows)


@cute.jit
def reduce_lanes(value, combine: cutlass.Constexpr, rows, lanes, in_rows):
    """Combines one number of each of a row's lanes; every lane gets the result.

    The order is fixed: lanes of a warp by shuffles, then warps through shared memory.
    """
    width = cutlass.const_expr(min(lanes, 32) if in_rows else 1)
    parts = cutlass.const_expr(lanes // width)
    if cutlass.const_expr(width > 1):
        value = cute.arch.warp_reduction(value, combine, threads_in_group=width)
    if cutlass.const_expr(parts > 1):
        lane, row = lane_and_row(rows, lanes, in_rows)
        shared = SmemAllocator().allocate_tensor(type(value), cute.make_layout(parts * rows), 16)
        cute.arch.sync_threads()
        if lane % width == 0:
            shared[lane // width * rows + row] = value
        cute.arch.sync_threads()
        value = shared[row]
        for part in cutlass.range_constexpr(1, parts):
            value = combine(value, shared[part * rows + row])
    return value


def reduce_row(values, combine, rows, lanes, in_rows):
    """Combines all elements of a row; `values` are those of one thread, and all get the result."""
    value = values[0]
    for other in values[1:]:
        value = combine(value, other)
    return reduce_lanes(value, combine, rows, lanes, in_rows)
