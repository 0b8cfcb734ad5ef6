"""Output code with forms that the fixtures lack, written by hand as Inductor would.

For rows that are cut in two, with a rest, it is as of torch 2.11. Newer ones find a maximum and its
sum together, so that masked values and moments that are put together in a loop are rarer there.
"""

from collections.abc import Sequence

import torch

from evolve.core.compiled import Compiled
from tests.operators.output_code import compiled, matrix, pointwise, room

_TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {result}

def get_inputs():
    return [{given}]

def get_init_inputs():
    return []
"""

_ROWS = "torch.randn(3, 1001) * 3 + 7"

_REDUCTION = """
triton_red_fused_{name} = async_compile.triton('triton_red_fused_{name}', '''
import triton

@triton_heuristics.reduction(
    size_hints={{'x': 8, 'r0_': 512}}, reduction_hint=ReductionHint.INNER, triton_meta={{}},
    inductor_meta={{'grid_type': 'Grid1D'}}
)
@triton.jit
def triton_red_fused_{name}(
    {pointers}, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr
):
    xnumel = {rows}
    r0_numel = {columns}
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = (xindex % 2)
    x1 = xindex // 2
    x3 = xindex
{before}
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_2 = r0_index
{inside}
{after}
''', device_str='cuda')
"""

_PART = """
tmp0 = r0_2 + 501*x0
tmp1 = tl.full([1, 1], 1001, tl.int32)
tmp2 = tmp0 < tmp1
tmp3 = tl.load(in_ptr0 + (r0_2 + 501*x0 + 1001*x1), r0_mask & tmp2 & xmask, other=0.0)
"""


def _reduction(
    name: str, sizes: tuple[int, int], pointers: str, before: str, inside: str, after: str
) -> str:
    rows, columns = sizes
    return _REDUCTION.format(
        name=name,
        pointers=pointers,
        rows=rows,
        columns=columns,
        before=_indented(before, 4),
        inside=_indented(inside, 8),
        after=_indented(after, 4),
    )


def _indented(lines: str, by: int) -> str:
    return "\n".join(" " * by + line for line in lines.strip().splitlines())


def _launched(kernels: Sequence[str], shapes: Sequence[tuple[int, int]], *runs: str) -> Compiled:
    """Buffers are `buf0` and so on, the last one the output."""
    rooms = [room(f"buf{at}", matrix(*shape)) for at, shape in enumerate(shapes)]
    lines = [*rooms, *(f"triton_red_fused_{run}" for run in runs)]
    guarded = ["with torch.cuda._DeviceGuard(0):", *(f"    {line}" for line in lines)]
    out = f"buf{len(shapes) - 1}"
    return compiled({"x": matrix(3, 1001)}, guarded, out, "".join(kernels))


_FULL = "_tmp9 = tl.full([XBLOCK, R0_BLOCK], {value}, tl.float32)"
_ADDED = "_tmp9 = tl.where(r0_mask & xmask, tmp8, _tmp9)"

_SUM = [
    _reduction(
        "amax_0",
        (3, 1001),
        "in_ptr0, out_ptr0",
        _FULL.format(value='float("-inf")'),
        "tmp0 = tl.load(in_ptr0 + (r0_2 + 1001*x3), r0_mask & xmask, other=0.0)\n"
        "tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])\n"
        f"tmp8 = triton_helpers.maximum(_tmp9, tmp1)\n{_ADDED}",
        "tmp9 = triton_helpers.max2(_tmp9, 1)[:, None]\ntl.store(out_ptr0 + (x3), tmp9, xmask)",
    ),
    _reduction(
        "exp_1",
        (6, 501),
        "in_ptr0, in_ptr1, out_ptr0",
        _FULL.format(value=0),
        f"{_PART}"
        "tmp4 = tl.load(in_ptr1 + (tl.broadcast_to(x1, [XBLOCK, R0_BLOCK])), "
        "r0_mask & tmp2 & xmask, eviction_policy='evict_last', other=0.0)\n"
        "tmp5 = tl_math.exp(tmp3 - tmp4)\n"
        "tmp6 = tl.full(tmp5.shape, 0, tmp5.dtype)\n"
        "tmp7 = tl.where(tmp2, tmp5, tmp6)\n"
        "tmp10 = tl.broadcast_to(tmp7, [XBLOCK, R0_BLOCK])\n"
        f"tmp8 = _tmp9 + tmp10\n{_ADDED}",
        "tmp9 = tl.sum(_tmp9, 1)[:, None]\ntl.store(out_ptr0 + (x3), tmp9, xmask)",
    ),
    _reduction(
        "log_2",
        (3, 2),
        "in_ptr0, in_ptr1, out_ptr0",
        _FULL.format(value=0),
        "tmp0 = tl.load(in_ptr0 + (r0_2 + 2*x3), r0_mask & xmask, other=0.0)\n"
        "tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])\n"
        f"tmp8 = _tmp9 + tmp1\n{_ADDED}",
        "tmp9 = tl.sum(_tmp9, 1)[:, None]\n"
        "tmp2 = tl.load(in_ptr1 + (x3), xmask)\n"
        "tmp3 = tl_math.log(tmp9) + tmp2\n"
        "tl.store(out_ptr0 + (x3), tmp3, xmask)",
    ),
]

_ZEROS = "\n".join(
    f"tmp9_{part} = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)" for part in ("mean", "m2", "weight")
)
_COMBINED = """
tmp9_mean_next, tmp9_m2_next, tmp9_weight_next = triton_helpers.welford_combine(
    tmp9_mean, tmp9_m2, tmp9_weight,
    tmp10, tmp11, tmp12
)
tmp9_mean = tl.where(r0_mask & xmask, tmp9_mean_next, tmp9_mean)
tmp9_m2 = tl.where(r0_mask & xmask, tmp9_m2_next, tmp9_m2)
tmp9_weight = tl.where(r0_mask & xmask, tmp9_weight_next, tmp9_weight)
"""
_ALL = """
tmp13, tmp14, tmp15 = triton_helpers.welford(tmp9_mean, tmp9_m2, tmp9_weight, 1)
tmp9 = tmp13[:, None]
tmp16 = tmp14[:, None]
tmp17 = tmp15[:, None]
"""

_MOMENTS = [
    _reduction(
        "var_mean_0",
        (6, 501),
        "in_ptr0, out_ptr0, out_ptr1, out_ptr2",
        _ZEROS,
        f"{_PART}"
        "tmp4 = tl.full([1, 1], 0.0, tl.float32)\n"
        "tmp5 = tl.full(tmp4.shape, 0, tmp4.dtype)\n"
        "tmp6 = tl.where(tmp2, tmp4, tmp5)\n"
        "tmp7 = tl.full([1, 1], 1.0, tl.float32)\n"
        "tmp8 = tl.full(tmp7.shape, 0, tmp7.dtype)\n"
        "tmp18 = tl.where(tmp2, tmp7, tmp8)\n"
        "tmp10 = tl.broadcast_to(tmp3, [XBLOCK, R0_BLOCK])\n"
        "tmp11 = tl.broadcast_to(tmp6, [XBLOCK, R0_BLOCK])\n"
        f"tmp12 = tl.broadcast_to(tmp18, [XBLOCK, R0_BLOCK]){_COMBINED}",
        f"{_ALL}"
        "tl.store(out_ptr0 + (x3), tmp9, xmask)\n"
        "tl.store(out_ptr1 + (x3), tmp16, xmask)\n"
        "tl.store(out_ptr2 + (x3), tmp17, xmask)",
    ),
    _reduction(
        "var_mean_1",
        (3, 2),
        "in_ptr0, in_ptr1, in_ptr2, out_ptr0",
        _ZEROS,
        "tmp0 = tl.load(in_ptr0 + (r0_2 + 2*x3), r0_mask & xmask, other=0.0)\n"
        "tmp1 = tl.load(in_ptr1 + (r0_2 + 2*x3), r0_mask & xmask, other=0.0)\n"
        "tmp2 = tl.load(in_ptr2 + (r0_2 + 2*x3), r0_mask & xmask, other=0.0)\n"
        "tmp10 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])\n"
        "tmp11 = tl.broadcast_to(tmp1, [XBLOCK, R0_BLOCK])\n"
        f"tmp12 = tl.broadcast_to(tmp2, [XBLOCK, R0_BLOCK]){_COMBINED}",
        f"{_ALL}"
        "tmp18 = tl.full([1, 1], 1001.0, tl.float32)\n"
        "tmp19 = (tmp16 / tmp18)\n"
        "tl.store(out_ptr0 + (x3), tmp19, xmask)",
    ),
]

_LARGE = [
    "x0 = xindex",
    "tmp0 = tl.load(in_ptr0 + (x0), xmask)",
    "tmp1 = tl_math.abs(tmp0)",
    "tmp2 = tl.full([1], 16777217, tl.int64)",
    "tmp3 = triton_helpers.maximum(tmp1, tmp2)",
    "tmp4 = tl.full(tmp3.shape, 16777216, tmp3.dtype)",
    "tmp5 = tmp3 - tmp4",
    "tmp6 = tl.broadcast_to(x0, tmp5.shape)",
    "tl.store(out_ptr0 + (x0), tmp5 + tmp6, xmask)",
]
_INTEGERS = torch.empty(257, dtype=torch.int64, device="meta")

CASES: dict[str, tuple[str, Compiled]] = {
    "cut_sum": (
        _TASK.format(result="torch.logsumexp(x, 1, keepdim=True)", given=_ROWS),
        _launched(
            _SUM,
            [(3, 1), (3, 2), (3, 1)],
            "amax_0.run(x, buf0, 3, 1001, stream=stream0)",
            "exp_1.run(x, buf0, buf1, 6, 501, stream=stream0)",
            "log_2.run(buf1, buf0, buf2, 3, 2, stream=stream0)",
        ),
    ),
    "cut_moments": (
        _TASK.format(result="torch.var(x, 1, correction=0, keepdim=True)", given=_ROWS),
        _launched(
            _MOMENTS,
            [(3, 2), (3, 2), (3, 2), (3, 1)],
            "var_mean_0.run(x, buf0, buf1, buf2, 6, 501, stream=stream0)",
            "var_mean_1.run(buf0, buf1, buf2, buf3, 3, 2, stream=stream0)",
        ),
    ),
    "large_integers": (
        _TASK.format(
            result="torch.clamp(x.abs(), min=16777217) - 16777216 + torch.arange(257)",
            given="torch.arange(257) - 16777300",
        ),
        compiled(
            {"x": _INTEGERS},
            [
                "with torch.cuda._DeviceGuard(0):",
                f"    {room('buf0', _INTEGERS)}",
                "    triton_poi_fused_large_0.run(x, buf0, 257, stream=stream0)",
            ],
            "buf0",
            pointwise("large", 257, "in_ptr0, out_ptr0", _LARGE),
        ),
    ),
}
"""Tasks and their code, by name."""
