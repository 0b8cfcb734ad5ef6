"""CuTe DSL without a GPU: what its programs become for an NVIDIA H100, stubs, what is kept.

Invariants: each honest program of the corpus, each program of the knowledge document and the
example of the prompt compile for capability 9.0; their kernels are launched in the stream that they
are given; names and PTX of a build's kernels are kept, so that a profile shows whose they are; a
compiler's message is the candidate's fault; a stubbed launch does nothing and is noted; a part of
the package that a GPU has not is named. Where the package is missing, that is said with the remedy.
"""

import os
import re
import sys
from pathlib import Path

import pytest
import torch

from evolve.core.devices import CPU, CUDA
from evolve.languages.builds import BuildError
from evolve.languages.cute import CUTE
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

lacking = CUTE.missing_package()
with_cute = pytest.mark.skipif(bool(lacking), reason=lacking)
EXAMPLE = example_of(CUTE)
BLOCKS = python_blocks("cute-kernels")
NAMES = honest_names("cute")


def test_its_marks_are_the_decorators():
    assert detect_language("from cutlass import cute\n\n\n@cute.kernel\ndef k(x): ...\n") is CUTE
    assert detect_language("import cutlass.cute as c\n\n\n@c.kernel\ndef k(x): ...\n") is CUTE
    assert detect_language("from cutlass.cute import kernel\n\n\n@kernel\ndef k(x): ...\n") is CUTE
    assert detect_language("from cutlass import cute\n\n\n@cute.jit\ndef k(x): ...\n") is not CUTE
    assert detect_language("import cutlass\n\n\n@kernel\ndef k(x): ...\n") is not CUTE


def test_descriptors_tell_a_product_from_a_pass():
    words = "memory_access", "parallelism", "compute_pattern", "kernels"
    assert described(CUTE, *words) == {
        "gate": ("scalar", "threads", "elementwise", 1.0),
        "matmul": ("blocked", "threads", "tiled", 1.0),
        "softmax": ("scalar", "threads+simd", "two_pass", 1.0),
    }
    cheat = CUTE.describe((CHEATS / "gpu_n97_cute_single_tf32.py").read_text())
    assert (cheat["precision_path"], cheat["compute_pattern"]) == ("tf32", "tiled")


def test_without_a_gpu_it_is_refused_and_the_remedy_named():
    assert "CuTe DSL runs on device=cuda; for device=cpu write C++" in refusal(CUTE, CPU)
    assert not refusal(CUTE, CUDA)


@pytest.mark.skipif(not lacking, reason="nvidia-cutlass-dsl is installed")
def test_where_it_is_missing_the_remedy_is_named():
    why = CUTE.missing_package(honest("gpu_cute_gate"))
    assert why == "nvidia-cutlass-dsl is not installed; pip install 'evolve-kernels[cute]'"


def test_a_version_that_is_too_old_is_named_with_the_remedy(tmp_path: Path, monkeypatch):
    about = tmp_path / "nvidia_cutlass_dsl-4.2.0.dist-info"
    about.mkdir()
    text = "Metadata-Version: 2.1\nName: nvidia-cutlass-dsl\nVersion: 4.2.0\n"
    (about / "METADATA").write_text(text)
    (tmp_path / "cutlass.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    why = CUTE.missing_package(honest("gpu_cute_gate"))
    assert why == "nvidia-cutlass-dsl 4.2.0 is too old; pip install 'evolve-kernels[cute]'"


@pytest.mark.parametrize(
    ("line", "capability", "fits"),
    [
        ("from cutlass.cute.nvgpu import warpgroup", 90, True),
        ("from cutlass.cute.nvgpu import warpgroup", 80, False),
        ("from cutlass.cute.nvgpu import warpgroup", 100, False),
        ("from cutlass.cute.nvgpu import tcgen05", 90, False),
        ("from cutlass.cute.nvgpu import tcgen05", 100, True),
        ("from cutlass.cute.nvgpu import tcgen05", 120, False),
        ("from cutlass import cute\n\ncute.nvgpu.tcgen05.CtaGroup(1)", 90, False),
        ("from cutlass.cute.nvgpu import warp", 80, True),
        ("options = '--enable-tvm-ffi --gpu-arch sm_100a'", 90, False),
        ("options = '--gpu-arch=sm_90a'", 90, True),
        ("options = '--gpu-arch=sm_90a'", 100, False),
        ("options = '--gpu-arch=sm_80'", 86, True),
    ],
)
def test_what_the_card_has_not_is_named_with_the_remedy(line, capability, fits):
    why = CUTE.unfit_gpu(f"{line}\n", capability)
    assert (not why) is fits
    if why:
        assert f"capability {capability / 10}; leave it out" in why


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runner that builds for a GPU that is not here."""
    folder = tmp_path / "build"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    os.environ.update(CUTE.caches(folder, True))
    from cutlass.base_dsl.compiler import CompileCallable
    from cutlass.base_dsl.jit_executor import JitCompiledFunction

    monkeypatch.setattr(CompileCallable, "__call__", CompileCallable.__call__)
    monkeypatch.setattr(JitCompiledFunction, "__init__", JitCompiledFunction.__init__)
    dsl = sys.modules["cutlass.cutlass_dsl"].CuTeDSL._get_dsl()
    monkeypatch.setattr(dsl.envar, "_arch", "sm_90a")
    monkeypatch.setattr(dsl.envar, "keep_ptx", True)  # read when another test imported it
    monkeypatch.setattr(dsl.envar, "dump_dir", str(tmp_path))
    assert CUTE.keep_builds is not None
    CUTE.keep_builds(honest("gpu_cute_gate"), str(folder), True)
    return folder


def kept(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.rglob("kernel.ptx"))


@with_cute
@pytest.mark.parametrize("name", NAMES)
def test_honest_programs_compile_for_a_gpu_that_is_not_here(build: Path, name: str):
    loaded(honest(f"gpu_cute_{name}"))
    ptx = kept(build)
    assert ptx.count(".visible .entry") == 1
    assert ".target sm_90a" in ptx


@with_cute
def test_the_example_of_the_prompt_compiles(build: Path):
    assert detect_language(EXAMPLE) is CUTE
    loaded(EXAMPLE)
    assert "st.global" in kept(build)


@with_cute
@pytest.mark.parametrize(
    ("number", "instruction"), [(0, "ld.global.v4"), (1, "mma.sync.aligned.m16n8k16.row.col.f32")]
)
def test_programs_of_the_knowledge_document_compile(build: Path, number: int, instruction: str):
    assert len(BLOCKS) == 2
    loaded(BLOCKS[number].partition("if torch.cuda.is_available():")[0])
    ptx = kept(build)
    assert instruction in ptx
    assert "local" not in ptx  # no registers in memory


@with_cute
def test_a_kernel_of_the_build_is_its_own_in_a_profile_however_long_its_name(build: Path):
    source = honest("gpu_cute_gate")
    long = f"gate_{'x' * 200}_kernel"
    (name,) = loaded(source.replace("gate_kernel", long)).launch.kernel_info
    assert len(name) < 200  # up to there a profile keeps it; the package cuts it
    own = OwnCode(str(build))
    assert own.holds(name)
    assert not own.holds("kernel_cutlass_other_kernel_tensorptrf32gmemo1_0")


@with_cute
def test_where_nothing_is_built_nothing_is_kept(build: Path):
    assert CUTE.keep_builds is not None
    before = {*build.rglob("*")}
    with pytest.MonkeyPatch.context() as patch:
        from cutlass.base_dsl.jit_executor import JitCompiledFunction

        patch.setattr(JitCompiledFunction, "__init__", JitCompiledFunction.__init__.__wrapped__)
        CUTE.keep_builds(honest("gpu_cute_gate"), str(build), False)
        loaded(honest("gpu_cute_gate"))
    assert {*build.rglob("*")} == before


@with_cute
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("at < cute.size(x)", "at < cute.size(z)", r"name 'z' is not defined\n  --> program.py:\d"),
        ("y[at] =", "y[at, 1] =", r"coordinate to be\s+weakly congruent"),
    ],
)
def test_a_compilers_message_is_the_candidates_fault(build: Path, right, wrong, words):
    source = honest("gpu_cute_gate")
    assert right in source
    with pytest.raises(BuildError, match=words) as caught:
        loaded(source.replace(right, wrong))
    assert "\x1b" not in str(caught.value)
    assert str(Path.cwd()) not in str(caught.value)


@with_cute
@pytest.mark.usefixtures("build")
def test_a_stubbed_launch_does_nothing_and_is_noted():
    program = loaded(honest("gpu_cute_softmax"))
    with stub_custom() as skipped:
        found = program.ModelNew()(torch.randn(16, 40))
    assert found.shape == (16, 40)
    (name,) = skipped
    assert "softmax" in name
    with pytest.raises((RuntimeError, ValueError, TypeError)):  # tensors of the CPU
        program.launch(torch.randn(16, 40), torch.randn(16, 40))


@with_cute
@pytest.mark.parametrize("name", ["n96_cute_decoy", "n98_cute_side_stream"])
def test_cheats_compile(build: Path, name: str):
    loaded((CHEATS / f"gpu_{name}.py").read_text())
    assert kept(build).count(".visible .entry") == 1


@with_cute
def test_a_cheat_of_precision_is_seen_in_its_code(build: Path):
    loaded((CHEATS / "gpu_n97_cute_single_tf32.py").read_text())
    ptx = kept(build)
    assert re.search(r"mma\.sync\.aligned\.\w+\.row\.col\.f32\.tf32\.tf32", ptx)
