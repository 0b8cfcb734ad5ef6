"""Gluon without a GPU: what its programs become for an NVIDIA H100, and what is not for a GPU.

Invariants: each honest program of the corpus and the example of the prompt compile for capability
9.0 (Triton's interpreter does not run them); a product uses `wgmma`; a part of the package that a
GPU has not is named.
"""

import pytest
import torch

from evolve.core.devices import CPU, CUDA
from evolve.languages.gluon import GLUON
from evolve.languages.registry import detect_language, refusal
from evolve.languages.triton import TRITON
from tests.languages.programs import example_of, honest, honest_names
from tests.operators.compiling import compiled, launches

SHAPES = {"gate": [(256, 512)], "softmax": [(128, 512)], "tensor_cores": [(96, 128), (128, 80)]}
EXAMPLE = example_of(GLUON)
NAMES = honest_names("gluon")


def ptx_of(source: str, *shapes: tuple[int, ...]) -> str:
    inputs = [torch.empty(shape, device="meta") for shape in shapes]
    return "\n".join(compiled(each)["ptx"] for each in launches(source, inputs))


@pytest.mark.parametrize("name", NAMES)
def test_honest_programs_compile_for_a_gpu_that_is_not_here(name: str):
    assert ".visible .entry" in ptx_of(honest(f"gpu_gluon_{name}"), *SHAPES[name])


def test_a_product_uses_the_tensor_cores_of_a_warp_group():
    ptx = ptx_of(honest("gpu_gluon_tensor_cores"), *SHAPES["tensor_cores"])
    assert "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32" in ptx
    assert ptx.index("fence.proxy.async") < ptx.index("wgmma.mma_async")


def test_the_example_of_the_prompt_compiles():
    assert detect_language(EXAMPLE) is GLUON
    assert "st.global" in ptx_of(EXAMPLE, (37, 53))


@pytest.mark.parametrize(
    ("imported", "capability", "fits"),
    [
        ("nvidia.ampere import async_copy", 75, False),
        ("nvidia.ampere import async_copy", 90, True),
        ("nvidia.hopper import tma", 80, False),
        ("nvidia.hopper import tma", 100, True),
        ("nvidia.hopper import warpgroup_mma", 90, True),
        ("nvidia.hopper import warpgroup_mma", 100, False),
        ("nvidia.blackwell import tcgen05_mma", 90, False),
        ("amd import cdna3", 90, False),
    ],
)
def test_a_part_of_the_package_that_the_card_has_not_is_named(imported, capability, fits):
    source = f"from triton.experimental.gluon.language.{imported}\n"
    why = GLUON.unfit_gpu(source, capability)
    assert (not why) is fits
    if why:
        assert imported.partition(" ")[0] in why
        assert f"{capability / 10}" in why


def test_words_of_triton_are_its_own_and_those_of_gluon_too():
    triton = "import triton\n\n\n@triton.jit\ndef k(x): ...\n"
    gluon = "from triton.experimental import gluon\n\n\n@gluon.jit\ndef k(x): ...\n"
    other = "from triton.experimental.gluon import jit\n\n\n@jit\ndef k(x): ...\n"
    assert [detect_language(text) for text in (triton, gluon, other)] == [TRITON, GLUON, GLUON]


def test_without_a_gpu_it_is_refused_and_the_remedy_named():
    assert "Gluon runs on device=cuda; for device=cpu write C++" in refusal(GLUON, CPU)
    assert not refusal(GLUON, CUDA)


def test_descriptors_tell_a_product_from_a_pass():
    words = {name: GLUON.describe(honest(f"gpu_gluon_{name}"))["compute_pattern"] for name in NAMES}
    assert words == {
        "gate": "elementwise",
        "softmax": "two_pass",
        "tensor_cores": "tiled",
    }
