"""Gluon: Triton's lower level, where layouts, shared memory and barriers are written out.

Its functions are launched, compiled and cached as Triton's are, so `triton` has all of that.
Facts: docstrings of `triton.experimental.gluon` 3.6 and 3.7.
"""

import ast
import re

from evolve.languages.base import Descriptors, Language, Package
from evolve.languages.syntax import decorated, imported, parsed
from evolve.languages.triton import TRITON, describe_blocks

_PACKAGE = "triton.experimental.gluon"
_LOCAL = re.compile(r"\b(?:gl|ttgl)\.")  # the names by which its tutorials import the language
_OF_GPUS = {  # parts of the package, the capability that they need, and up to which
    "nvidia.ampere": (80, 1000),
    "nvidia.hopper": (90, 1000),
    "nvidia.hopper.warpgroup_mma": (90, 99),
    "nvidia.blackwell": (100, 1000),
    "amd": (1000, 1000),
}


def _makes_kernel(name: str) -> bool:
    return name.startswith(f"{_PACKAGE}.") and name.rpartition(".")[2] == "jit"


def _finds(tree: ast.Module) -> bool:
    return bool(decorated(tree, _makes_kernel))


def _describe(source: str) -> Descriptors:
    text = _LOCAL.sub("tl.", source)
    found = describe_blocks(text, "@gluon.jit")
    if re.search(r"\b(?:warpgroup_mma|mma_v2|tcgen05_mma|dot_fma)\(", text):
        return {**found, "memory_access": "blocked", "compute_pattern": "tiled"}
    return found


def _unfit_gpu(source: str, capability: int) -> str:
    for name in sorted(imported(parsed(source)).values()):
        for part, (least, most) in _OF_GPUS.items():
            is_of_part = f".{part}." in f"{name}." and name.startswith(_PACKAGE)
            if is_of_part and not least <= capability <= most:
                return (
                    f"{name} is not for a GPU of capability {capability / 10}; leave it out, or "
                    "take a GPU that has it"
                )
    return ""


_CONTRACT = """\
- Kernels in Gluon: functions under `@gluon.jit` in the module, launched as \
`kernel[grid](..., num_warps=4)` from `forward`; a helper that a kernel calls is one too. Every \
block has a layout, and its size is a power of two:

```python
import torch
import triton
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def scale_kernel(x, y, factor, n, BLOCK: gl.constexpr, PER_THREAD: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([PER_THREAD], [32], [gl.num_warps()], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    inside = at < n
    gl.store(y + at, gl.load(x + at, mask=inside, other=0.0) * factor, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, y, 2.0, x.numel(), BLOCK=1024, PER_THREAD=4, num_warps=4
        )
        return y
```

  A sum over axis 1 of a block in `layout` is in `gl.SliceLayout(1, layout)`, and `row[:, None]` \
needs a row in it; `gl.convert_layout(value, layout)` moves values between threads. Shared memory: \
`gl.allocate_shared_memory(gl.float16, [M, K], layout)` with `.store(value)` and `.load(layout)`. \
Of `triton.experimental.gluon.language.nvidia.hopper`: `tma` (with \
`triton.experimental.gluon.nvidia.hopper.TensorDescriptor` on the host), `mbarrier`, \
`warpgroup_mma(a, b, acc, is_async=...)` of operands in `gl.NVMMASharedLayout.get_default_for(\
[M, K], gl.float16)` with an accumulator in `gl.NVMMADistributedLayout(version=[3, 0], \
warps_per_cta=[4, 1], instr_shape=[16, N, 16])`, and `fence_async_shared()` between a store to \
shared memory and the `warpgroup_mma` or `tma` copy that reads it. For float32 operands (used as \
TF32) the last number is 8. Nothing is pipelined for you."""

GLUON = Language(
    name="gluon",
    title="Gluon",
    devices=("cuda",),
    finds=_finds,
    describe=_describe,
    contract=_CONTRACT,
    imports=("triton", "triton.experimental.gluon"),
    helpers="tensor descriptors, `triton.cdiv`, `triton.next_power_of_2`",
    fences=frozenset({"gluon"}),
    needs=TRITON.needs,
    packages=(Package(module="triton", distribution="triton", least=(3, 6), newest=(3, 9)),),
    unfit_gpu=_unfit_gpu,
    compiles_late=True,
    caches=TRITON.caches,
    stubs=TRITON.stubs,
)
