"""A program that sums over few long rows, as the compiler writes it when it may not cut them."""

TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid((x * x).sum(1)) + x.sum(1)


def get_inputs():
    return [torch.randn(16, 5001)]


def get_init_inputs():
    return []
"""

SOURCE = '''"""Sums over rows."""


import torch
import triton
import triton.language as tl


XBLOCK = 1
R0_BLOCK = 2048
NUM_WARPS = 4
TUNABLE = {
    "XBLOCK": (1, 2, 4, 8),
    "R0_BLOCK": (256, 512, 1024, 2048, 4096),
    "NUM_WARPS": (1, 2, 4, 8, 16),
}


# mul, sum, sigmoid, add
@triton.jit
def row_sums_kernel(buf2_ptr, x_ptr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xnumel = 16
    r0_numel = 5001
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    x0 = xindex
    _tmp0 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    _tmp1 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        r0_1 = r0_index
        x = tl.load(
            x_ptr + (r0_1 + 5001 * x0), r0_mask & xmask, eviction_policy='evict_first',
            other=0.0,
        )
        tmp2 = _tmp0 + tl.broadcast_to(x * x, [XBLOCK, R0_BLOCK])
        _tmp0 = tl.where(r0_mask & xmask, tmp2, _tmp0)
        tmp3 = _tmp1 + tl.broadcast_to(x, [XBLOCK, R0_BLOCK])
        _tmp1 = tl.where(r0_mask & xmask, tmp3, _tmp1)
    tmp0 = tl.sum(_tmp0, 1)[:, None]
    tmp1 = tl.sum(_tmp1, 1)[:, None]
    tl.store(buf2_ptr + x0, tl.sigmoid(tmp0) + tmp1, xmask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        assert x.shape == (16, 5001), x.shape
        x = x.contiguous()
        buf0 = torch.empty((16,), device=x.device, dtype=torch.float32)
        # mul, sum, sigmoid, add
        row_sums_kernel[(triton.cdiv(16, XBLOCK),)](
            buf0, x, XBLOCK=XBLOCK, R0_BLOCK=R0_BLOCK, num_warps=NUM_WARPS
        )
        return buf0
'''
