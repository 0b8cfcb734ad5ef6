"""Gluon, several rows to a program, each of them in one warp.

task: softmax
device: cuda
fidelity: screen
"""

import torch
import triton
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def softmax_kernel(x, y, m, n, ROWS: gl.constexpr, WIDTH: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    at = row[:, None] * n + column[None, :]
    inside = (row[:, None] < m) & (column[None, :] < n)
    value = gl.load(x + at, mask=inside, other=-float("inf"))
    value = gl.where(row[:, None] < m, value, 0.0)  # a row of nothing but -inf has no maximum
    part = gl.exp(value - gl.max(value, axis=1)[:, None])
    gl.store(y + at, part / gl.sum(part, axis=1)[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        m, n = x.shape
        y = torch.empty_like(x)
        width = max(128, triton.next_power_of_2(n))
        softmax_kernel[(triton.cdiv(m, 4),)](x, y, m, n, ROWS=4, WIDTH=width, num_warps=4)
        return y
