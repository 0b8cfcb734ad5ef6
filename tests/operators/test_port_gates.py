"""Programs of the compiler in CuTe DSL, cuTile and TileLang, compiled for an NVIDIA H100.

Invariants, in an interpreter that has the package and without a GPU: kernels of the compiler,
products of matrices and the benchmark's attention compile for capability 9.0, with tunables as they
are and drawn at random; products of float32 in parts and of fp16 and bf16 are on tensor cores,
those of cuTile read by TMA, and CuTe DSL and cuTile spill no registers for them; TileLang reads
masked elements under their mask.
"""

import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from triton import knobs

from evolve.core.source import tunables
from evolve.languages.registry import find_language
from tests import benchmarks
from tests.languages.programs import loaded
from tests.operators import port_cases, port_gates
from tests.operators.output_code import matrix

NAMES = ("softmax", "layernorm_looped", "softmax_online", "cut_moments", "gelu_bias")
FLOAT32, HALF = "float32", "bfloat16"
HOPPER = '{"kind": "cuda", "arch": "sm_90a"}'


def lacks(language: str) -> str:
    return find_language(language).missing()


def with_package(language: str) -> pytest.MarkDecorator:
    why = lacks(language)
    return pytest.mark.skipif(bool(why), reason=why)


LANGUAGES = [
    pytest.param(language, marks=with_package(language))
    for language in ("cute", "cutile", "tilelang")
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ |= {
        "CUDA_TILE_CACHE_DIR": str(tmp_path),
        "TILELANG_CACHE_DIR": str(tmp_path),
        "TILELANG_DEFAULT_TARGET": HOPPER,
        "TILELANG_PRINT_ON_COMPILATION": "0",
        "CUTE_DSL_ARCH": "sm_90a",
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_DUMP_DIR": str(tmp_path),
    }


def compiled(language: str, source: str, run: Callable[[], None]) -> str:
    """PTX, SASS or CUDA C++ of the program's kernels."""
    if language == "cute":
        return "\n".join(port_gates.cute(lambda: loaded(source)))
    if language == "tilelang":
        return "\n".join(port_gates.tilelang(run))
    return "\n".join(map(disassembled, port_gates.cutile(run)))


def disassembled(code: bytes) -> str:
    Path("kernel.cubin").write_bytes(code)
    tool = [knobs.nvidia.nvdisasm.path, "-c", "kernel.cubin"]
    return subprocess.run(tool, check=True, capture_output=True, text=True).stdout


def drawn(source: str, seed: str) -> str:
    return tunables.render(source, tunables.parse(source).sample(random.Random(seed)))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_the_compiler_compile(language: str, name: str):
    task, _ = port_cases.read(name)
    source = drawn(port_cases.ported(name, language), name)
    text = compiled(language, source, lambda: port_gates.run(source, task))
    marks = {"cute": ".target sm_90a", "cutile": "STG.E", "tilelang": "main_kernel"}
    assert marks[language] in text


TENSOR_CORES = {
    "cute": r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16",
    "cutile": r"HGMMA\.64x\d+x16\.F32\.BF16",
    "tilelang": r"tl::wgmma_ss<.*BFloat16",
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("dtype", "parts"), [(FLOAT32, 3), (FLOAT32, 2), (HALF, 1)])
def test_products_compile_to_tensor_cores(language: str, dtype: str, parts: int):
    kind = getattr(torch, dtype)
    a, b = matrix(640, 512).to(kind), matrix(512, 384, turned=True).to(kind)
    case = port_cases.product(dtype, language, a, b, matrix(384).to(kind))
    source = tunables.render(case["source"], {"PRODUCT_PARTS": parts} if parts > 1 else {})
    tensors = [torch.zeros(size, dtype=kind).as_strided(*view) for size, view in case["tensors"]]
    run = port_gates.forward(source, tensors)
    text = compiled(language, source, run)
    assert re.search(TENSOR_CORES[language], text)
    assert not re.search(r"\.local\b|\bSTL\b", text)
    assert language != "cutile" or "UTMALDG" in text


ATTENTION = {
    "cutile": (r"HGMMA\.\S*BF16", "UTMALDG"),
    "tilelang": (r"tl::wgmma_rs<.*BFloat16", "tl::tma_load"),
}


@pytest.mark.parametrize("features", [64, 128])
@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_attention_compiles_to_tensor_cores_and_reads_tiles_by_tma(language: str, features: int):
    source = (Path(benchmarks.__file__).parent / "attention" / f"{language}.py").read_text()
    tensors = [torch.empty(2, 2, 512, features, dtype=torch.bfloat16) for _ in range(3)]
    text = compiled(language, source, port_gates.forward(source, tensors))
    assert all(re.search(mark, text) for mark in ATTENTION[language])
    assert not re.search(r"\bSTL\b", text)


@with_package("tilelang")
def test_tilelang_reads_masked_elements_under_their_mask():
    task, _ = port_cases.read("layernorm_looped")
    source = port_cases.ported("layernorm_looped", "tilelang")
    text = compiled("tilelang", source, lambda: port_gates.run(source, task))
    reads = re.findall(r"^.*=.*\bx_ptr\b.*$", text, re.M)
    assert reads
    assert all(re.search(rf"if \(.*\) \{{\n{re.escape(read)}", text) for read in reads)
