"""Device functions that kernels of Inductor call; a program gets a copy of those it needs.

They replace the functions of these names (`any_of`: `any`) in
`torch._inductor.runtime.triton_helpers`, with exact exponentials for either choice of
`use_fast_math`. NaN wins every comparison, as it does in PyTorch.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def maximum(a, b):
    """The larger one."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def minimum(a, b):
    """The smaller one."""
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def max2(a, dim):
    """The largest along `dim`."""
    return tl.reduce(a, dim, maximum)


@triton.jit
def min2(a, dim):
    """The smallest along `dim`."""
    return tl.reduce(a, dim, minimum)


@triton.jit
def either(a, b):
    """Whether one of two holds."""
    return a | b


@triton.jit
def any_of(a, dim):
    """Whether one along `dim` holds."""
    return tl.reduce(a, dim, either)


@triton.jit
def product(a, b):
    """Of two."""
    return a * b


@triton.jit
def prod(a, dim):
    """Of all along `dim`."""
    return tl.reduce(a, dim, product)


@triton.jit
def maximum_with_index(a, a_index, b, b_index):
    """The first of equal ones; the first NaN if there is any."""
    ahead = (a > b) | ((a != a) & (b == b))
    tied = (a == b) | ((a != a) & (b != b))
    first = ahead | (tied & (a_index < b_index))
    return tl.where(first, a, b), tl.where(first, a_index, b_index)


@triton.jit
def minimum_with_index(a, a_index, b, b_index):
    """As `maximum_with_index`."""
    ahead = (a < b) | ((a != a) & (b == b))
    tied = (a == b) | ((a != a) & (b != b))
    first = ahead | (tied & (a_index < b_index))
    return tl.where(first, a, b), tl.where(first, a_index, b_index)


@triton.jit
def is_exceeded(a, b):
    """Whether `b` is larger, or NaN if `a` is a number."""
    return ((a < b) | (b != b)) & (a == a)


@triton.jit
def is_undercut(a, b):
    """Whether `b` is smaller, or NaN if `a` is a number."""
    return ((a > b) | (b != b)) & (a == a)


@triton.jit
def max_with_index(value, index, dim):
    """The largest along `dim`, and where."""
    return tl.reduce((value, index), dim, maximum_with_index)


@triton.jit
def min_with_index(value, index, dim):
    """The smallest along `dim`, and where."""
    return tl.reduce((value, index), dim, minimum_with_index)


@triton.jit
def online_softmax_combine(maxima, sums, values):
    """One more value for every running maximum and sum of exp(value - maximum).

    Milakov and Gimelshein 2018.
    """
    new_maxima = maximum(maxima, values)
    empty = new_maxima == float("-inf")
    share = tl.where(empty, 1.0, libdevice.exp(maxima - new_maxima))
    added = tl.where(empty, 1.0, libdevice.exp(values - new_maxima))
    return new_maxima, sums * share + added


@triton.jit
def online_softmax_combine_with_sum(maxima, sums, values, more):
    """Running maxima and sums with those of another part."""
    new_maxima = maximum(maxima, values)
    empty = new_maxima == float("-inf")
    share = tl.where(empty, 1.0, libdevice.exp(maxima - new_maxima))
    other_share = tl.where(empty, 1.0, libdevice.exp(values - new_maxima))
    return new_maxima, sums * share + more * other_share


@triton.jit
def online_softmax_reduce(maxima, sums, dim):
    """All maxima and sums along `dim` together."""
    largest = max2(maxima, dim)
    kept = tl.expand_dims(largest, dim)
    delta = tl.where(kept == float("-inf"), 0.0, maxima - kept)
    return largest, tl.sum(sums * libdevice.exp(delta), dim)


@triton.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    """Mean, sum of squared deviations and count of two parts together (Chan et al. 1979)."""
    delta = tl.where(mean_1 == mean_2, 0.0, mean_2 - mean_1)  # both may be infinite
    weight = weight_1 + weight_2
    share = tl.where(weight == 0.0, 0.0, weight_2 / weight)
    return mean_1 + delta * share, m2_1 + m2_2 + delta * delta * weight_1 * share, weight


@triton.jit
def welford(mean, m2, weight, dim):
    """All parts along `dim` together."""
    return tl.reduce((mean, m2, weight), dim, welford_combine)


@triton.jit
def welford_reduce(value, mean, m2, weight, is_first):
    """One more value for every running mean (Welford 1962)."""
    count = tl.where(is_first, 0.0 * weight, weight) + 1.0
    delta = value - tl.where(is_first, 0.0 * mean, mean)
    new_mean = tl.where(is_first, value, mean + delta / count)
    new_m2 = tl.where(is_first, 0.0 * m2, m2 + delta * (value - new_mean))
    return new_mean, new_m2, count


@triton.jit
def select_one(x, mask, dim, keep_dims: tl.constexpr = False):
    """The one element along `dim` that the mask shows."""
    return tl.sum(tl.where(mask, x, tl.zeros_like(x)), dim, keep_dims=keep_dims)


@triton.jit
def div_floor_integer(a, b):
    """The quotient, rounded down."""
    quotient = a // b
    return tl.where(((a < 0) != (b < 0)) & (quotient * b != a), quotient - 1, quotient)


@triton.jit
def remainder_integer(a, b):
    """The remainder, with the sign of the divisor."""
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
