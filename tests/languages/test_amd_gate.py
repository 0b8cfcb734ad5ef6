"""Triton's programs compile for AMD's GPUs with the ordinary wheel, no GPU needed.

Invariants:
- a product and a reduction become code for gfx942 and gfx950, whose wavefronts have 64 threads;
- a product of halves uses the matrix instructions of these GPUs.
"""

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

WAVEFRONT = 64


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


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_in_triton_compiles_for_an_amd_gpu(architecture, name, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel, types, block = PROGRAMS[name]
    source = ASTSource(kernel, {**types, "BLOCK": "constexpr"}, {"BLOCK": block})
    compiled = triton.compile(source, target=GPUTarget("hip", architecture, WAVEFRONT))
    text = compiled.asm["amdgcn"]
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{architecture}"' in text
    assert compiled.asm["hsaco"].startswith(b"\x7fELF")
    assert ("v_mfma_" in text) is (name == "product")
