"""cuTile without a GPU: what its programs become for an NVIDIA H100, stubs, what is kept.

Invariants: each honest program of the corpus, each cheat and the example of the prompt compile for
capability 9.0; float32 products stay float32 unless a program says otherwise; what one process
compiles is in the build's cache; names and code of a build's kernels are kept, so that a profile
shows whose they are; a compiler's message is the candidate's fault; a stubbed launch does nothing
and is noted. A missing package, a missing compiler or one of another version is named with the
remedy.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs

from evolve.core.devices import CPU, CUDA
from evolve.languages.builds import BuildError, note_kernel
from evolve.languages.cutile import CUTILE
from evolve.languages.registry import detect_language, refusal
from evolve.worker.runner.probes import stub_custom
from evolve.worker.runner.profiling import OwnCode
from tests.languages.programs import (
    CHEATS,
    described,
    example_of,
    honest,
    honest_names,
    loaded,
    python_blocks,
)

lacking = CUTILE.missing()
with_cutile = pytest.mark.skipif(bool(lacking), reason=lacking)
EXAMPLE = example_of(CUTILE)
BLOCKS = python_blocks("cutile-kernels")
NAMES = honest_names("cutile")
ARGUMENTS: dict[str, tuple[tuple[int, ...] | float, ...]] = {
    "gate": ((131072,), (131072,), 1024),
    "softmax": ((128, 512), (128, 512), 512),
    "product": ((96, 128), (128, 80), (96, 80), 32, 32, 32),
    "row_sums": ((1001, 2050), (1001,), 4, 1024),
    "scale": ((1961,), (1961,), 2.0, 1024),
}


def test_its_marks_are_the_decorators():
    for line in ("import cuda.tile as ct", "from cuda import tile as ct"):
        assert detect_language(f"{line}\n\n\n@ct.kernel\ndef k(x): ...\n") is CUTILE
        assert detect_language(f"{line}\n\n\n@ct.kernel(occupancy=2)\ndef k(x): ...\n") is CUTILE
        assert detect_language(f"{line}\n\n\n@ct.function\ndef k(x): ...\n") is not CUTILE
    assert detect_language("from cuda.tile import kernel\n\n\n@kernel\ndef k(x): ...\n") is CUTILE
    assert detect_language("import cuda.tile\n\n\n@cuda.tile.kernel\ndef k(): ...\n") is CUTILE


def test_descriptors_tell_a_product_from_a_pass():
    words = "memory_access", "compute_pattern", "precision_path", "kernels"
    assert described(CUTILE, *words) == {
        "gate": ("vector", "elementwise", "fp32", 1.0),
        "softmax": ("vector", "two_pass", "fp32", 1.0),
        "matmul": ("blocked", "tiled", "fp32", 1.0),
    }
    cheat = (CHEATS / "gpu_n100_cutile_single_tf32.py").read_text()
    assert CUTILE.describe(cheat)["precision_path"] == "tf32"


def test_without_a_gpu_it_is_refused_and_the_remedy_named():
    assert "cuTile runs on device=cuda; for device=cpu write C++" in refusal(CUTILE, CPU)
    assert not refusal(CUTILE, CUDA)


@pytest.mark.parametrize(("capability", "fits"), [(75, False), (80, True), (90, True)])
def test_a_gpu_that_is_too_old_is_named_with_the_remedy(capability, fits):
    why = CUTILE.unfit_gpu(honest("gpu_cutile_gate"), capability)
    assert why == ("" if fits else "cuTile is not for a GPU of capability 7.5; write Triton")


COMPILERS = {
    "none": ({}, "there is no tileiras; "),
    "too old for an H100": (
        {"nvidia-cuda-tileiras": "13.2.1", "nvidia-cuda-nvcc": "13.2.4", "nvidia-nvvm": "13.2.4"},
        "nvidia-nvvm 13.2.4 is too old; ",
    ),
    "of two versions": (
        {"nvidia-cuda-tileiras": "13.4.9", "nvidia-cuda-nvcc": "13.0.4", "nvidia-nvvm": "13.4.9"},
        "of one version, here is nvidia-cuda-tileiras 13.4.9, nvidia-cuda-nvcc 13.0.4, ",
    ),
    "a part": ({"nvidia-cuda-tileiras": "13.4.9"}, "of one version, here is "),
    "as it should be": (
        {"nvidia-cuda-tileiras": "13.4.9", "nvidia-cuda-nvcc": "13.4.9", "nvidia-nvvm": "13.4.9"},
        "",
    ),
}


@pytest.mark.parametrize(("versions", "words"), COMPILERS.values(), ids=COMPILERS.keys())
def test_a_compiler_that_does_not_fit_is_named_with_the_remedy(monkeypatch, versions, words):
    from evolve.languages import cutile

    def installed(name: str) -> tuple[str, str] | None:
        return (name, versions[name]) if name in versions else None

    monkeypatch.setattr(cutile, "_installed", installed)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    why = CUTILE.missing_tools()
    assert words in why
    assert why.endswith("pip install -U 'cuda-tile[tileiras]'") if words else not why


@pytest.mark.skipif(not CUTILE.missing_package(), reason="cuda-tile is installed")
def test_where_it_is_missing_the_remedy_is_named():
    why = CUTILE.missing_package(honest("gpu_cutile_gate"))
    assert why == "cuda-tile is not installed; pip install 'evolve-kernels[cutile]'"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a build in a runner that builds."""
    folder = tmp_path / "build"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    caches = CUTILE.caches(folder, True)
    os.environ.update(caches)
    from cuda.tile import kernel
    from cuda.tile._cext import default_tile_context as context

    monkeypatch.setattr(kernel, "_compile", kernel._compile)
    monkeypatch.setattr(context.config, "cache_dir", caches["CUDA_TILE_CACHE_DIR"])
    assert CUTILE.keep_builds is not None
    CUTILE.keep_builds(honest("gpu_cutile_gate"), str(folder), True)
    return folder


def compiled(source: str) -> tuple[bytes, str]:
    """Code and name of a program's kernel, as the first launch on an H100 compiles it."""
    import cuda.tile as ct
    from cuda.tile._cext import default_tile_context
    from cuda.tile.compilation import (
        ArrayConstraint,
        CallingConvention,
        KernelSignature,
        ScalarConstraint,
    )

    def constraint(given: tuple[int, ...] | float) -> Any:
        if isinstance(given, tuple):
            return ArrayConstraint(
                ct.float32,
                len(given),
                index_dtype=ct.int32,
                stride_lower_bound_incl=0,
                alias_groups=(),
                may_alias_internally=False,
                stride_constant=(*(None for _ in given[1:]), 1),
                base_addr_divisible_by=16,
            )
        return ScalarConstraint(ct.float32) if isinstance(given, float) else given

    found = (each for each in vars(loaded(source)).values() if isinstance(each, ct.kernel))
    (kernel,) = found
    parameters = [constraint(each) for each in ARGUMENTS[kernel._pyfunc.__name__]]
    signature = KernelSignature(parameters, CallingConvention.cutile_python_v1())
    code, name, *_ = kernel._compile(signature, default_tile_context, (9, 0))
    return code, name


def instructions(code: bytes) -> str:
    """Of a cubin, as the disassembler names them that comes with Triton."""
    Path("kernel.cubin").write_bytes(code)
    tool = [knobs.nvidia.nvdisasm.path, "-c", "kernel.cubin"]
    return subprocess.run(tool, check=True, capture_output=True, text=True).stdout


@with_cutile
@pytest.mark.parametrize("name", NAMES)
def test_honest_programs_compile_for_a_gpu_that_is_not_here(build: Path, name: str):
    code, symbol = compiled(honest(f"gpu_cutile_{name}"))
    assert code.startswith(b"\x7fELF")
    assert OwnCode(str(build)).holds(symbol)
    assert not OwnCode(str(build)).holds("another_kernel")
    assert (build / "cutile" / "cache.db").stat().st_size > len(code)


@with_cutile
@pytest.mark.parametrize("name", ["n99_cutile_decoy", "n101_cutile_side_stream"])
@pytest.mark.usefixtures("build")
def test_cheats_compile(name: str):
    compiled((CHEATS / f"gpu_{name}.py").read_text())


@with_cutile
@pytest.mark.usefixtures("build")
def test_products_of_float32_stay_so_unless_a_program_says_otherwise():
    exact, _ = compiled(honest("gpu_cutile_matmul"))
    cheat, _ = compiled((CHEATS / "gpu_n100_cutile_single_tf32.py").read_text())
    assert re.search(r"\bHG?MMA\.\S*TF32", instructions(cheat))
    assert re.search(r"\bF(?:MUL|FMA) ", instructions(exact))
    assert not re.search(r"\bHG?MMA\.", instructions(exact))


@with_cutile
@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("number", [0, 1])
def test_programs_of_the_knowledge_document_compile(number: int):
    assert len(BLOCKS) == 2
    code, _ = compiled(BLOCKS[number])
    assert code.startswith(b"\x7fELF")


def test_a_kernel_is_known_by_as_much_of_a_long_name_as_a_profile_has(tmp_path: Path):
    note_kernel(tmp_path, "k" * 300, "cubin", b"")
    assert OwnCode(str(tmp_path)).holds("k" * 200)
    assert not OwnCode(str(tmp_path)).holds("k" * 199)


def test_a_kernel_is_kept_whatever_else_comes_and_goes_in_its_folder(tmp_path: Path):
    (other := tmp_path / "tmp").mkdir()  # of a compiler
    note_kernel(tmp_path, "first", "cubin", b"")
    other.rmdir()
    note_kernel(tmp_path, "second", "cubin", b"")
    assert OwnCode(str(tmp_path)).holds("first")
    assert OwnCode(str(tmp_path)).holds("second")


@with_cutile
@pytest.mark.usefixtures("build")
def test_the_example_of_the_prompt_compiles():
    assert detect_language(EXAMPLE) is CUTILE
    code, _ = compiled(EXAMPLE)
    assert code.startswith(b"\x7fELF")


@with_cutile
@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("ct.maximum(value, 0.0)", "ct.maximun(value, 0.0)", "maximun"),
        ("shape=(size,)", "shape=(size + 1,)", "power of 2|power of two"),
    ],
)
def test_a_compilers_message_is_the_candidates_fault(right, wrong, words):
    source = honest("gpu_cutile_gate")
    assert right in source
    with pytest.raises(BuildError, match=words):
        compiled(source.replace(right, wrong))


@with_cutile
@pytest.mark.usefixtures("build")
def test_a_stubbed_launch_does_nothing_and_is_noted(monkeypatch):
    import cuda.tile as ct

    launch = ct.launch
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    with stub_custom() as skipped:
        found = loaded(honest("gpu_cutile_softmax")).ModelNew()(torch.randn(16, 40))
    assert found.shape == (16, 40)
    assert skipped == ["softmax"]
    assert ct.launch is launch
