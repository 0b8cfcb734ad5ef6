"""Descriptors of a kernel for AMD's GPUs, from the files that Triton leaves in a build.

Invariants:
- a product multiplies in matrix instructions of its operands' type, a sum of rows in none;
- shares are of all instructions, and what goes through shared memory is told from global memory;
- a kernel without such a file, or a file of nonsense, has no descriptors.
"""

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from evolve.core.devices import HIP
from evolve.worker.build.amd_stats import amd_figures, amd_operands
from evolve.worker.runner.profiling import OwnCode
from tests.languages.test_amd_gate import WAVEFRONT


@triton.jit
def product(left, right, out, size, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for at in range(0, size, BLOCK):
        one = tl.load(left + rows * size + at + columns)
        other = tl.load(right + (at + rows) * size + columns)
        total = tl.dot(one, other, total)
    tl.store(out + rows * size + columns, total.to(tl.float16))


@triton.jit
def row_sum(values, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    kept = tl.load(values + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row, tl.sum(kept, axis=0))


PROGRAMS = {
    "product": (product, dict.fromkeys(("left", "right", "out"), "*fp16") | {"size": "i32"}, 64),
    "row sum": (row_sum, dict.fromkeys(("values", "out"), "*fp32") | {"columns": "i32"}, 1024),
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A folder of a build with both programs for an MI300."""
    folder = tmp_path_factory.mktemp("build")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRITON_CACHE_DIR", str(folder))
        for kernel, types, block in PROGRAMS.values():
            source = ASTSource(kernel, {**types, "BLOCK": "constexpr"}, {"BLOCK": block})
            triton.compile(source, target=GPUTarget("hip", "gfx942", WAVEFRONT))
    return OwnCode(str(folder))


def test_a_product_multiplies_in_matrix_instructions(build):
    assert build.holds("product")
    assert build.multiplies_in("product") == ["fp16"]
    found = build.compiled("product")
    assert found["tensor_cores"] == "fp16"
    shares = (found["matrix_share"], found["shared_share"], found["global_share"])
    assert all(0 < share < 0.2 for share in shares)
    assert shares[0] < shares[1] <= shares[2]
    assert found["spill_bytes"] == 0.0


def test_a_sum_of_rows_multiplies_in_none(build):
    assert build.multiplies_in("row_sum") == []
    found = build.compiled("row_sum")
    assert found["tensor_cores"] == "no"
    assert found["matrix_share"] == 0.0
    assert found["global_share"] > 0
    assert found.keys() <= HIP.descriptors


@pytest.mark.parametrize(
    ("instruction", "type_"),
    [
        ("v_mfma_f32_32x32x8_f16 v[0:15], v[0:1], v[2:3], v[0:15]", "fp16"),
        ("v_mfma_f32_32x32x4_2b_bf16 a[0:31], v[0:1], v[2:3], a[0:31]", "bf16"),
        ("v_mfma_f32_32x32x8bf16_1k v[0:15], v[0:1], v[2:3], v[0:15]", "bf16"),
        ("v_mfma_f32_16x16x32_fp8_bf8 v[0:3], v[0:1], v[2:3], v[0:3]", "fp8"),
        ("v_mfma_i32_16x16x32_i8 v[0:3], v[0:1], v[2:3], v[0:3]", "s8"),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[0:1], v[2:3], v[0:7]", "fp64"),
        ("v_smfmac_f32_16x16x32_f16 v[0:3], v[0:1], v[2:5], v6", "fp16"),
    ],
)
def test_an_instruction_names_its_operands(instruction, type_):
    assert amd_operands(f"\t{instruction}\n") == [type_]


def test_spilled_registers_are_scratch_memory():
    text = "\ts_endpgm\n    .private_segment_fixed_size: 40\n"
    assert amd_figures(text)["spill_bytes"] == 40.0


def test_nonsense_has_no_descriptors(build):
    assert build.compiled("another") == {}
    for text in ("", "\0" * 1000, "{" * 10000, "\t.section\n"):
        assert amd_figures(text) == {}
