"""Device functions of converted kernels beside torch's, in Triton's interpreter."""

import itertools
import json

import torch
import triton
import triton.language as tl

from operators.local.inductor.device_functions import (
    div_floor_integer,
    maximum,
    minimum,
    remainder_integer,
)


@triton.jit
def divided(a_ptr, b_ptr, quotient_ptr, remainder_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(quotient_ptr + at, div_floor_integer(a, b))
    tl.store(remainder_ptr + at, remainder_integer(a, b))


@triton.jit
def compared(a_ptr, b_ptr, larger_ptr, smaller_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(larger_ptr + at, maximum(a, b))
    tl.store(smaller_ptr + at, minimum(a, b))


def beside(kernel, a, b):
    """Both outcomes of a kernel on all elements."""
    size = triton.next_power_of_2(len(a))
    padded = [torch.nn.functional.pad(each, (0, size - len(each)), value=1) for each in (a, b)]
    outcomes = [torch.zeros_like(padded[0]) for _ in range(2)]
    kernel[(1,)](*padded, *outcomes, N=size)
    return [outcome[: len(a)] for outcome in outcomes]


def pairs(values, others, dtype):
    return torch.tensor(list(itertools.product(values, others)), dtype=dtype).T.contiguous()


def told(name, found, expected) -> None:
    """On a line, how many elements are not torch's."""
    wrong = ~torch.isclose(found, expected, equal_nan=True)
    print(json.dumps([name, int(wrong.sum())]))


def main() -> None:
    a, b = pairs(range(-7, 8), (-3, -2, -1, 1, 2, 3), torch.int64)
    quotient, remainder = beside(divided, a, b)
    told("div_floor_integer", quotient, torch.div(a, b, rounding_mode="floor"))
    told("remainder_integer", remainder, torch.remainder(a, b))

    floats = (-1.5, 0.0, 2.5, float("inf"), float("-inf"), float("nan"))
    a, b = pairs(floats, floats, torch.float32)
    larger, smaller = beside(compared, a, b)
    told("maximum", larger, torch.maximum(a, b))
    told("minimum", smaller, torch.minimum(a, b))


if __name__ == "__main__":
    main()
