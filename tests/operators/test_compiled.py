"""Templates as Triton compiles them for an NVIDIA H100, which need not be there.

Invariants: every kernel of the library compiles (Triton's interpreter takes what its compiler does
not); neighbouring threads store what lies side by side; products of parts are left to tensor cores
that read shared memory. How fast a kernel is only a GPU can tell.
"""

import pytest
import torch

from operators.templates import library
from tests.operators.compiling import compiled, launches, stores
from tests.operators.even_cases import EVEN_CASES
from tests.operators.packed_cases import PACKED_CASES
from tests.operators.templates_cases import CASES, convolution, image, matrix, product
from tests.operators.whole_cases import WHOLE_CASES

KERNELS = [name for name in library.known() if name.endswith("_kernel")]
PROGRAMS = [*CASES, *EVEN_CASES, *PACKED_CASES, *WHOLE_CASES]


def made(case, kernel: str):
    """What becomes of the case's first launch of the kernel."""
    dtypes = (getattr(torch, name.removeprefix("torch.")) for name in case["dtypes"])
    inputs = [
        torch.empty_strided(*view, dtype=dtype, device="meta")
        for (_, view), dtype in zip(case["tensors"], dtypes, strict=True)
    ]
    found = launches(case["source"], inputs)
    return compiled(next(each for each in found if each[0].__name__ == kernel))


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_compiles(kernel):
    case = next(each for each in PROGRAMS if f"  {kernel}[" in each["source"])
    assert ".visible .entry" in made(case, kernel)["ptx"]


SIDE = matrix(2048, 2048)
PICTURES, FILTERS = image(8, 64, 100, 130), image(128, 64, 3, 3)
LAST = image(8, 64, 100, 130, last=True), image(128, 64, 3, 3, last=True)
BACK = {"transposed": True, "stride": (1, 1)}
LARGE = {
    "rows": (1, "matmul_kernel", product("", SIDE, SIDE)),
    "rows, packed": (1, "matmul_packed_kernel", product("", SIDE, SIDE, how="packed")),
    "pictures": (0, "conv_kernel", convolution("", PICTURES, FILTERS)),
    "pictures, packed": (0, "conv_packed_kernel", convolution("", PICTURES, FILTERS, how="packed")),
    "channels": (1, "conv_kernel", convolution("", *LAST)),
    "channels, packed": (1, "conv_packed_kernel", convolution("", *LAST, how="packed")),
    "back": (0, "conv_transpose_kernel", convolution("", PICTURES, image(64, 32, 3, 3), **BACK)),
    "depthwise": (
        0,
        "conv_direct_kernel",
        convolution("", PICTURES, image(64, 1, 3, 3), groups=64),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_neighbouring_threads_store_what_lies_side_by_side(name):
    axis, kernel, case = LARGE[name]
    assert [axes[0] for axes in stores(made(case, kernel)["ttgir"]) if len(axes) == 2] == [axis]


@pytest.mark.parametrize("name", ["rows, packed", "pictures, packed", "channels, packed"])
def test_parts_go_through_shared_memory_to_tensor_cores(name):
    _, kernel, case = LARGE[name]
    ptx = made(case, kernel)["ptx"]
    assert "wgmma.mma_async" in ptx
    assert "cp.async.cg.shared.global" in ptx  # 16 bytes at a time
    assert "mma.sync" not in ptx
