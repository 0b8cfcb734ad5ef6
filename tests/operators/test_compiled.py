"""Templates as Triton compiles them for an NVIDIA H100, which need not be there.

Invariants: every kernel of the library compiles (Triton's interpreter takes what its compiler does
not); neighbouring threads store what lies side by side, and no thread stores across the end of a
row; products of parts are left to tensor cores that read shared memory. How fast a kernel is only a
GPU can tell.
"""

import json
import re
from pathlib import Path

import pytest
import torch

from evolve.core.compiled import Compiled
from operators.local.inductor import convert
from operators.local.templates import How, library
from tests.operators.compiling import LOADS, STORES, accesses, compiled, launches
from tests.operators.even_cases import EVEN_CASES
from tests.operators.output_code import image, matrix
from tests.operators.packed_cases import FEW_FILTERS, PACKED_CASES
from tests.operators.recurrence_cases import RECURRENCE_CASES
from tests.operators.templates_cases import CASES, convolution, product
from tests.operators.whole_cases import WHOLE_CASES

KERNELS = [name for name in library.known() if name.endswith("_kernel")]
PROGRAMS = [*CASES, *EVEN_CASES, *PACKED_CASES, *FEW_FILTERS, *WHOLE_CASES, *RECURRENCE_CASES]


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
IMAGES, FILTERS = image(8, 64, 99, 57), image(128, 64, 3, 3)  # of odd width, as are outputs
LAST = image(8, 64, 99, 57, last=True), image(128, 64, 3, 3, last=True)
BACK, TURNED = image(64, 32, 3, 3), {"transposed": True, "stride": (2, 2)}
EACH, FEW = image(64, 1, 3, 3), image(16, 64, 3, 3)
LARGE = {
    "rows": (1, 1, "matmul_kernel", product("", SIDE, SIDE)),
    "rows, packed": (1, 1, "matmul_packed_kernel", product("", SIDE, SIDE, how=How.PACKED)),
    "rows, stretched": (1, 1, "matmul_packed_kernel", product("", SIDE, SIDE, how=How.STRETCHED)),
    "images": (1, 1, "conv_kernel", convolution("", IMAGES, FILTERS)),
    "images, cut": (1, 1, "conv_pack_kernel", convolution("", IMAGES, FILTERS, how=How.PACKED)),
    "images, packed": (
        1,
        1,
        "conv_packed_kernel",
        convolution("", IMAGES, FILTERS, how=How.PACKED),
    ),
    "images, wide": (1, 1, "conv_wide_kernel", convolution("", IMAGES, FEW, how=How.WIDE)),
    "channels": (0, 0, "conv_kernel", convolution("", *LAST)),
    "channels, cut": (0, 1, "conv_pack_kernel", convolution("", *LAST, how=How.PACKED)),
    "channels, packed": (1, 0, "conv_packed_kernel", convolution("", *LAST, how=How.PACKED)),
    "back": (1, 1, "conv_transpose_kernel", convolution("", IMAGES, BACK, **TURNED)),
    "depthwise": (1, 1, "conv_direct_kernel", convolution("", IMAGES, EACH, groups=64)),
}
"""Axes of blocks along which elements lie side by side, where they are loaded first and stored."""


@pytest.mark.parametrize("name", LARGE)
def test_neighbouring_threads_have_what_lies_side_by_side(name):
    loaded, stored, kernel, case = LARGE[name]
    ttgir = made(case, kernel)["ttgir"]
    assert next(accesses(ttgir, *LOADS)) == loaded
    assert set(accesses(ttgir, *STORES)) == {stored}


def widest(ptx: str, operation: str) -> int:
    """Elements of float32 that a thread loads or stores at once, at most."""
    found = re.findall(rf"{operation}\.global\S*?(?:\.v(\d))?\.b32", ptx)
    return max(int(number or 1) for number in found)


ROWS = {
    "plain": ("conv_kernel", {}),
    "packed": ("conv_packed_kernel", {"how": How.PACKED}),
    "back": ("conv_transpose_kernel", TURNED),
    "back, packed": ("conv_packed_kernel", {"how": How.PACKED} | TURNED),
    "few filters": ("conv_wide_kernel", {"how": How.WIDE}),
    "back, few filters": ("conv_wide_kernel", {"how": How.WIDE} | TURNED),
}
"""Outputs of few filters are side by side in a block, also those between two inputs."""


@pytest.mark.parametrize("width", [2, 7, 30, 60])
@pytest.mark.parametrize("name", ROWS)
def test_no_thread_stores_across_the_end_of_a_row(name, width):
    kernel, options = ROWS[name]
    is_back, is_wide = "stride" in options, "few filters" in name
    many = 16 if is_wide else 32
    filters = (64, many, 3, 3) if is_back else (many, 64, 3, 3)
    before = width if is_back else width + 2
    found = made(convolution("", image(4, 64, 24, before), image(*filters), **options), kernel)
    wide = widest(found["ptx"], "st")
    assert width % wide == 0
    assert wide == 1 or not is_back  # phases have every second place, and rows are odd
    assert wide == 4 or width != 60 or is_back


@pytest.mark.parametrize("width", [4, 7, 30, 60])
def test_no_thread_reads_across_the_end_of_a_row(width):
    case = convolution("", image(4, 64, 24, width), image(32, 64, 3, 3), how=How.PACKED)
    wide = widest(made(case, "conv_pack_kernel")["ptx"], "ld")
    assert width % wide == 0
    assert wide == 4 or width != 60


@pytest.mark.parametrize(
    "name",
    ["rows, packed", "rows, stretched", "images, packed", "images, wide", "channels, packed"],
)
def test_parts_go_through_shared_memory_to_tensor_cores(name):
    *_, kernel, case = LARGE[name]
    ptx = made(case, kernel)["ptx"]
    assert "wgmma.mma_async" in ptx
    assert "cp.async.cg.shared.global" in ptx  # 16 bytes at a time
    assert "mma.sync" not in ptx


def test_neighbouring_threads_have_neighbouring_columns_of_rows_of_an_odd_number():
    fixture = Path(__file__).parent / "inductor_fixtures" / "odd_columns.json"
    data = json.loads(fixture.read_text())
    source = convert(data["task"], "odd", Compiled.from_json(data["compiled"]))
    found = {
        launch[0].__name__: set(accesses(compiled(launch)["ttgir"], *LOADS))
        for launch in launches(source, [torch.empty(2, 1100, 33, device="meta")])
    }
    assert set.union(*found.values()) == {0}, found
