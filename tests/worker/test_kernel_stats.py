"""What a compiler made of a kernel.

Invariants:
1. Shares are of all instructions of a kernel, directives and labels left out.
2. The stack is what the vendor's own tool says.
3. Nothing that a candidate may leave behind raises.
"""

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.build.kernel_stats import instruction_shares, stack_bytes
from evolve.worker.runner.profiling import Kernel, OwnCode, profile_of

PTX = """
.version 8.7
.visible .entry product(.param .u64 product_param_0)
{
	.reg .b32 %r<9>;
$L__BB0_1:
	.loc 1 13 0 // product.py:13:0
	ld.param.b64 %rd1, [product_param_0];
	@%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];
	cp.async.bulk.tensor.2d.shared::cluster.global [%r2], [%rd1, {%r3, %r4}];
	st.shared.v4.b32 [%r2], {%r1, %r1, %r1, %r1};
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}, [%r2];
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 0;
	fence.proxy.async.shared::cta;
	add.s32 %r1, %r1, 4;
	ret;
}
"""


COMPILE = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def product(a, b, c, B: tl.constexpr):
    at = tl.arange(0, B)
    left = tl.load(a + at[:, None] * B + at[None, :])
    right = tl.load(b + at[:, None] * B + at[None, :])
    tl.store(c + at[:, None] * B + at[None, :], tl.dot(left, right))

types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "B": "constexpr"}
source = ASTSource(fn=product, signature=types, constexprs={(3,): 128})
triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
"""


def cubin(*frames: int) -> bytes:
    """An ELF file with nothing but the attributes of so many functions."""
    entries = [struct.pack("<BBHII", 4, 0x2F, 8, n, 40) for n, _ in enumerate(frames)]
    entries += [struct.pack("<BBH", 3, 0x1B, 7)]
    entries += [struct.pack("<BBHII", 4, 0x11, 8, n, size) for n, size in enumerate(frames)]
    info = b"".join(entries)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 2, 190, 1, 0, 0, 64, 0, 64, 0, 0, 64, 1, 0
    )
    return (
        header + struct.pack("<IIQQQQIIQQ", 0, 0x70000000, 0, 0, 128, len(info), 0, 0, 4, 0) + info
    )


def test_shares_are_of_all_instructions():
    assert instruction_shares(PTX) == {
        "global_share": 0.2,
        "shared_share": 0.2,
        "matrix_share": 0.1,
    }


@pytest.mark.parametrize("text", ["", "// nothing\n", ".version 8.7\n.target sm_90\n"])
def test_a_text_without_instructions_has_no_shares(text):
    assert instruction_shares(text) == {}


def test_the_stack_is_the_largest_frame():
    assert stack_bytes(cubin(0, 4224, 16)) == 4224
    assert stack_bytes(cubin(0)) == 0
    assert stack_bytes(cubin()) is None


@given(st.integers(0, 300), st.binary(max_size=80))
def test_a_damaged_file_says_nothing_or_a_number(at, junk):
    whole = cubin(8, 16)
    found = stack_bytes(whole[:at] + junk + whole[at + len(junk) :])
    assert found is None or found >= 0
    assert stack_bytes(whole[:at]) in (None, 8, 16)


def test_the_descriptors_are_those_of_the_own_kernel_that_took_longest(tmp_path):
    cache = tmp_path / "triton" / "ABC"
    cache.mkdir(parents=True)
    (cache / "product.json").write_text(json.dumps({"name": "product"}))
    (cache / "product.ptx").write_text(PTX)
    (cache / "product.cubin").write_bytes(cubin(64))
    kernels = [
        Kernel("product", 80.0, registers=200, shared_bytes=65536, occupancy=0.25),
        Kernel("at::native::fill", 90.0, registers=16, shared_bytes=0),
    ]
    profile = profile_of(kernels, OwnCode(str(tmp_path)))
    assert profile is not None
    assert profile.compiled == {
        "registers": 200.0,
        "shared_bytes": 65536.0,
        "occupancy": 0.25,
        "global_share": 0.2,
        "shared_share": 0.2,
        "matrix_share": 0.1,
        "tensor_cores": "fp16",
        "spill_bytes": 64.0,
    }


def test_what_is_not_known_of_a_kernel_is_left_out(tmp_path):
    (tmp_path / "gate.so").write_bytes(b"\x7fELF..\0_ZN4mine4gateIfEEvPT_\0..")
    profile = profile_of([Kernel("mine::gate", 5.0, registers=40)], OwnCode(str(tmp_path)))
    assert profile is not None
    assert profile.compiled == {"registers": 40.0}
    foreign = profile_of([Kernel("other", 5.0, registers=40)], OwnCode(str(tmp_path)))
    assert foreign is not None
    assert foreign.compiled == {}


@pytest.mark.slow
def test_what_triton_leaves_behind_is_read_as_the_vendors_own_tool_reads_it(tmp_path):
    """Compiled for another device than is here; one warp for a large tile has to spill."""
    import triton

    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    if not (tools / "cuobjdump").exists():
        pytest.skip("this Triton brings no tools of NVIDIA's")
    program = tmp_path / "compile.py"
    program.write_text(COMPILE)
    settings = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, program], check=True, env=settings, capture_output=True)
    found = OwnCode(str(tmp_path)).compiled("product")
    (binary,) = tmp_path.rglob("product.cubin")
    usage = subprocess.run(
        [tools / "cuobjdump", "-res-usage", binary], check=True, capture_output=True, text=True
    )
    assert f"STACK:{found['spill_bytes']:.0f} " in usage.stdout
    assert re.search(r"STACK:[1-9]", usage.stdout)
    assert found["tensor_cores"] == "fp16"
    assert 0 < found["matrix_share"] < found["global_share"] < 1
