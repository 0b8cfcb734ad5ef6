"""Profiles of a candidate's kernels: whose they are, and what is said of them.

Invariants:
- a kernel is the candidate's own exactly when its build holds it, whatever it is called;
- nothing that a process may send as a profile raises, and an empty profile proves nothing;
- shares add up to what was seen.
"""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.languages.torch import TORCH
from evolve.worker.base.faults import CandidateFault
from evolve.worker.runner.profiling import Kernel, OwnCode, profile_of, read_kernels, summarise
from tests.worker.serving import forward
from tests.worker.sharing import shared

CUBLAS = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"
AMPERE = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn"
ATEN = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
)
PTX = "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {%f1}, %rd1, %rd2, p, 1, 1;"


@pytest.fixture
def build(tmp_path):
    """A build with a Triton kernel, and a library with two kernels of CUDA C++."""
    cache = tmp_path / "triton" / "ABC"
    cache.mkdir(parents=True)
    (cache / "product.json").write_text(json.dumps({"name": "product", "shared": 1024}))
    (cache / "product.ptx").write_text(PTX)
    (cache / "__grp__product.json").write_text(json.dumps({"child_paths": {}}))
    (tmp_path / "gate.so").write_bytes(b"\x7fELF..\0_ZN4mine4gateIfEEvPT_\0plain\0..")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("product", True),
        ("void mine::gate<float>(float*)", True),
        ("(anonymous namespace)::gate(float*)", True),
        ("plain", True),
        (CUBLAS, False),
        (ATEN, False),
        ("products", False),
        ("Memcpy DtoD (Device -> Device)", False),
        ("", False),
        ("<", False),
    ],
)
def test_a_kernel_is_own_when_the_build_holds_it(build, name, is_own):
    assert OwnCode(str(build)).holds(name) is is_own


@pytest.mark.parametrize("content", [b"", b"[]", b'{"name": 7}', b"\xff\xfe", b"[" * 100_000])
def test_whatever_a_build_holds_is_no_error(build, content):
    (build / "triton" / "odd.json").write_bytes(content)
    (build / "loop").symlink_to(build)
    assert OwnCode(str(build)).holds("product")
    assert not OwnCode(None).holds("product")


def test_a_library_that_does_the_main_work_is_told_from_own_kernels(build):
    profile = profile_of([Kernel(CUBLAS, 80.0), Kernel("product", 20.0)], OwnCode(str(build)))
    assert profile.library_made
    assert profile.coverage == pytest.approx(0.2)
    labels = {label.name: label.evidence for label in profile.labels}
    assert labels["library_call"] == f"{CUBLAS}: 80% of the device time"
    assert labels["kernels"] == f"{CUBLAS} 80%; product 20% (own)"
    assert labels["effective_precision"] == "product multiplies matrices in tf32"


def test_an_own_kernel_with_a_librarys_name_stays_own(build):
    (build / "x.so").write_bytes(b"\0_Z12cutlass_gemmPf\0")
    profile = profile_of([Kernel("cutlass_gemm(float*)", 9.0)], OwnCode(str(build)))
    assert not profile.library_made
    assert profile.coverage == 1.0


def test_kernels_of_torch_are_neither_own_nor_a_vendors(build):
    profile = profile_of([Kernel(ATEN, 90.0), Kernel("product", 10.0)], OwnCode(str(build)))
    assert not profile.library_made
    assert profile.coverage == pytest.approx(0.1)
    assert [fact.is_own for fact in profile.facts] == [False, True]


RELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
    "launch_clamp_scalar(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >()"
)
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >()"
)


def test_torch_that_does_the_main_work_is_told_from_own_kernels(build):
    profile = profile_of([Kernel(RELU, 80.0), Kernel("product", 20.0)], OwnCode(str(build)))
    assert profile.library_made
    labels = {label.name: label.evidence for label in profile.labels}
    assert labels["aten_compute"].startswith("void at::native::vectorized_elementwise_kernel")
    assert labels["aten_compute"].endswith(": 80% of the device time")


@pytest.mark.parametrize(
    "kernels",
    [
        [Kernel(RELU, 20.0), Kernel("product", 30.0)],  # less than the own
        [Kernel(RELU, 3.0), Kernel("product", 2.0)],  # launches
        [Kernel(CAST, 80.0), Kernel("product", 20.0)],  # which computes nothing
    ],
)
def test_a_small_part_of_torchs_is_not_the_main_work(build, kernels):
    profile = profile_of(kernels, OwnCode(str(build)))
    assert not profile.library_made
    assert "aten_compute" not in [label.name for label in profile.labels]


def test_the_precision_in_a_librarys_name_is_said():
    (label,) = [
        found
        for found in profile_of([Kernel(AMPERE, 5.0)], OwnCode(None)).labels
        if found.name == "effective_precision"
    ]
    assert label.evidence.endswith("in bf16")


def event(name, us, cat="kernel", **args):
    return {"ph": "X", "cat": cat, "name": name, "dur": us, "args": args}


USED = {"registers per thread": 32, "shared memory": 0, "est. achieved occupancy %": 50}


def rows(*events, launched=()):
    """Rows of a trace with these events, one after the other, as the judge reads them."""
    timed = [{**each, "ts": 10 * place} for place, each in enumerate(events)]
    trace = {"traceEvents": [*timed[::-1], {"ph": "M", "name": "process_name"}]}
    return read_kernels(json.dumps(summarise(trace, {"gate", "pack"}, launched)))


def test_a_trace_becomes_a_row_per_kernel_with_its_like_launches_together():
    gate, fill = rows(
        event("cudaLaunchKernel", 5.0, "cuda_runtime"),
        event("gate", 2.5, **USED, grid=[4096, 1, 1]),
        event("gate", 2.9, **USED, grid=[4096, 1, 1]),
        event("Memset (Device)", 1.0, "gpu_memset", bytes=4096),
    )
    assert (gate.name, gate.us, gate.registers, gate.occupancy) == ("gate", 5.4, 32, 0.5)
    assert (gate.grid, gate.launches, gate.operand_bytes) == ("4096", 2, None)
    assert (fill.us, fill.registers, fill.operand_bytes) == (1.0, None, 4096)


@pytest.mark.parametrize(
    ("other", "noted"),
    [
        ({"grid": [1024, 2, 1]}, {}),
        ({"registers per thread": 255}, {}),
        ({}, {"operand_bytes": 7}),
        ({}, {"stages": 4}),
    ],
)
def test_launches_of_one_kernel_with_roles_of_their_own_stay_apart(other, noted):
    """Four launches of `pack` were 46 % of the time, and one of them was bad."""
    first = event("pack", 2.0, **USED | {"grid": [4096, 1, 1]})
    second = event("pack", 2.0, **USED | {"grid": [4096, 1, 1]} | other)
    known = {"name": "pack", "operand_bytes": 5, "warps": 4, "stages": 3, "spills": 0}
    found = rows(first, second, first, launched=[known, known | noted, known])
    assert [(each.launches, each.us) for each in found] == [(2, 4.0), (1, 2.0)]
    assert found[0].operand_bytes == 10
    assert (found[0].warps, found[0].stages, found[0].spilled_bytes) == (4, 3, 0)


def test_a_launch_that_takes_much_longer_than_others_stays_apart():
    found = rows(*(event("pack", us, **USED) for us in (2.0, 2.1, 9.0, 2.2)))
    assert [(each.launches, round(each.us, 1)) for each in found] == [(1, 9.0), (3, 6.3)]


def test_a_copy_reads_what_it_writes():
    (copy,) = rows(event("Memcpy DtoD (Device -> Device)", 2.0, "gpu_memcpy", bytes=1000))
    assert copy.operand_bytes == 2000


def test_launches_of_one_kernel_are_one_in_labels_and_shares(build):
    launches = [Kernel("product", 30.0, 64), Kernel(RELU, 20.0), Kernel("product", 50.0, 32)]
    profile = profile_of(launches, OwnCode(str(build)))
    labels = [label.evidence for label in profile.labels if label.name == "kernels"]
    assert labels == [f"product 80% (own); {RELU[:56]} ... 20%"]
    assert sum(label.name == "effective_precision" for label in profile.labels) == 1
    assert profile.coverage == pytest.approx(0.8)
    assert profile.compiled["registers"] == 32.0  # of the launch that takes longest
    assert [fact.share for fact in profile.facts] == [0.3, 0.2, 0.5]


def test_what_is_left_out_of_a_profile_still_counts():
    rows = summarise({"traceEvents": [event(f"k{i}", 1.0) for i in range(40)]}, set())
    assert sum(kernel.us for kernel in read_kernels(json.dumps(rows))) == pytest.approx(40)


def test_a_kernel_called_kernel_has_its_name():
    """The profiler of torch 2.11 writes it to the trace as `Kernel`."""
    (seen,) = summarise({"traceEvents": [event("Kernel", 1.0)]}, {"kernel", "cuLaunchKernelEx"})
    assert seen["name"] == "kernel"
    (seen,) = summarise({"traceEvents": [event("Kernel", 1.0)]}, {"Kernel", "cuLaunchKernelEx"})
    assert seen["name"] == "Kernel"


def test_an_empty_profile_proves_nothing():
    assert profile_of([], OwnCode(None)) is None
    assert profile_of(read_kernels("[]"), OwnCode(None)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(
            ["name", "us", "registers", "shared", "occupancy", "grid", "launches", "operand_bytes"]
        ),
        inner,
    ),
)  # fmt: skip


@given(JSON)
def test_whatever_a_process_sends_is_read_or_dropped(data):
    kernels = read_kernels(json.dumps(data))
    profile = profile_of(kernels, OwnCode(None))
    assert profile is None or 0 <= profile.coverage <= 1


@pytest.mark.slow
def test_what_cannot_be_profiled_is_no_error_of_ours(launcher):
    with launcher.start(TORCH) as runner:
        runner.load("candidate", forward("return right(x)"), 20.0)
        runner.construct(0, 1, shared({"init": [], "state": {}}), 20.0)
        with pytest.raises(CandidateFault):  # there is no GPU to profile
            runner.observe(0, shared([torch.ones(64)]), 30.0)
