"""Convolutions by matrix products.

Invariants:
- they are torch's own, for all dimensions, strides, paddings, dilations and groups;
- who runs in the mode gets torch's own where no GPU computes in fp64.
"""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evolve.worker.correctness.convolution import ByProducts, convolution, in_parts


@st.composite
def convolutions(draw):
    dims, transposed = draw(st.integers(1, 3)), draw(st.booleans())

    def each(least, most):
        return [draw(st.integers(least, most)) for _ in range(dims)]

    groups = draw(st.sampled_from([1, 2, 3]))
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sizes, kernel = each(1, 6), each(1, 3)
    stride, padding, dilation = each(1, 3), each(0, 2), each(1, 2)
    more = [
        draw(st.integers(0, max(step, wide) - 1))
        for step, wide in zip(stride, dilation, strict=True)
    ]
    shape = (groups * inner, outer) if transposed else (groups * outer, inner)
    x = torch.randn(draw(st.integers(1, 2)), groups * inner, *sizes, dtype=torch.float64)
    weight = torch.randn(*shape, *kernel, dtype=torch.float64)
    bias = torch.randn(groups * outer, dtype=torch.float64) if draw(st.booleans()) else None
    output_padding = more if transposed else [0] * dims
    return x, weight, bias, stride, padding, dilation, transposed, output_padding, groups


@settings(max_examples=300, deadline=None)
@given(convolutions())
def test_it_is_torchs_own(arguments):
    try:
        wanted = torch.ops.aten.convolution.default(*arguments)
    except RuntimeError:
        assume(False)
    made = convolution(*arguments)
    assert made.shape == wanted.shape
    assert made.is_contiguous()
    torch.testing.assert_close(made, wanted, rtol=1e-12, atol=1e-12)


def test_one_number_stands_for_all_dimensions():
    x, weight = (torch.randn(2, 2, 5, 5, dtype=torch.float64) for _ in range(2))
    made = convolution(x, weight, None, [2], [1], [1], False, [0], 1)
    torch.testing.assert_close(made, torch.conv2d(x, weight, stride=2, padding=1))


@pytest.mark.parametrize("most", [1, 150, 10**6])
def test_a_large_batch_is_made_in_parts(most):
    x, weight = torch.randn(5, 3, 5, 5), torch.randn(4, 3, 2, 2)
    seen = []

    def convolved(part, *arguments):
        seen.append(part.shape[0])
        return torch.conv2d(part, *arguments)

    made = in_parts(convolved, x, weight, most=most)
    torch.testing.assert_close(made, torch.conv2d(x, weight))
    assert seen == {1: 5 * [1], 150: [2, 2, 1], 10**6: [5]}[most]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_the_cpu_the_mode_changes_nothing(dtype, monkeypatch):
    monkeypatch.setattr("evolve.worker.correctness.convolution.convolution", None)
    x, weight = (torch.randn(2, 2, 5, 5, dtype=dtype) for _ in range(2))
    wanted = torch.conv2d(x, weight)
    with ByProducts():
        assert torch.equal(torch.conv2d(x, weight), wanted)
