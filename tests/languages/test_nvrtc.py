"""NVRTC without a GPU: builds that are kept, whose kernels they are, stubs, and what does not fit.

Invariants: what one process compiles the next one loads without a compiler, as torch itself calls
it; a compiler's message is the candidate's fault; kernels of a kept build are the candidate's own
in a profile, by plain and by mangled names; a stubbed launch does nothing and is noted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _utils

from evolve.core.devices import CPU, CUDA
from evolve.languages.builds import BuildError
from evolve.languages.nvrtc import NVRTC
from evolve.languages.registry import detect_language, refusal
from evolve.worker.runner.probes import stub_custom
from evolve.worker.runner.profiling import OwnCode
from tests.languages.programs import honest

SOURCE = honest("gpu_nvrtc_rowsum")
MANGLED = "_Z8sum_rowsILi4EEvPKfPfii"
Compile = Callable[..., tuple[bytes, str]]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of the library that torch without CUDA has not; names that it was asked for."""
    asked: list[str] = []

    def compile_kernel(source: str, name: str, *options: Any) -> tuple[bytes, str]:
        asked.append(name)
        if "nonsense" in source:
            raise RuntimeError('Kernel compilation failed:\nk.cu(3): error: "nonsense"\n1 error')
        return b"\x7fELF" + source.encode(), MANGLED if "<" in name else name

    monkeypatch.setattr(_utils, "_nvrtc_compile", compile_kernel)
    return asked


def compiled(source: str, name: str) -> tuple[bytes, str]:
    """As `torch.cuda._compile_kernel` does before it loads the code."""
    return _utils._nvrtc_compile(source, name, None, None, None)


def test_what_one_process_compiles_the_next_one_loads(
    compiler: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain = _utils._nvrtc_compile
    assert NVRTC.keep_builds is not None
    NVRTC.keep_builds(SOURCE, str(tmp_path), True)
    first = compiled("text", "sum_rows<4>")
    monkeypatch.setattr(_utils, "_nvrtc_compile", plain)
    NVRTC.keep_builds(SOURCE, str(tmp_path), False)
    assert compiled("text", "sum_rows<4>") == first
    assert compiler == ["sum_rows<4>"]
    assert compiled("another text", "sum_rows<4>") != first
    assert compiler == ["sum_rows<4>", "sum_rows<4>"]


def test_a_program_in_another_language_leaves_torch_as_it_is(compiler: list[str], tmp_path: Path):
    before = _utils._nvrtc_compile
    assert NVRTC.keep_builds is not None
    NVRTC.keep_builds("import torch\n", str(tmp_path), True)
    assert _utils._nvrtc_compile is before


def test_a_compilers_message_is_the_candidates_fault(compiler: list[str], tmp_path: Path):
    assert NVRTC.keep_builds is not None
    NVRTC.keep_builds(SOURCE, str(tmp_path), True)
    with pytest.raises(BuildError, match=r'k.cu\(3\): error: "nonsense"'):
        compiled("nonsense", "k")
    assert not [*tmp_path.rglob("kernel.*")]


def test_kernels_of_a_kept_build_are_the_candidates_own(compiler: list[str], tmp_path: Path):
    assert NVRTC.keep_builds is not None
    NVRTC.keep_builds(SOURCE, str(tmp_path), True)
    compiled("one", "sum_rows<4>")
    compiled("two", "gate")
    own = OwnCode(str(tmp_path))
    assert own.holds("void sum_rows<4>(float const*, float*, int, int)")
    assert own.holds("gate")
    assert not own.holds("void at::native::vectorized_elementwise_kernel<4>(int)")
    assert not OwnCode(None).holds("gate")


def test_a_stubbed_launch_does_nothing_and_is_noted():
    launch = _utils._CudaKernel.__call__
    kernel = _utils._CudaKernel(None, None)  # type: ignore[arg-type]
    with stub_custom() as skipped:
        kernel(grid=(1, 1, 1), block=(32, 1, 1), args=[torch.ones(1)])
    assert skipped == ["an NVRTC kernel"]
    assert _utils._CudaKernel.__call__ is launch


@pytest.mark.parametrize(
    ("wanted", "capability", "fits"),
    [
        *(("90a", 90, True), ("90a", 100, False), ("90", 90, True), ("80", 86, True)),
        *(("90", 80, False), ("sm_90a", 90, True), ("\N{SUPERSCRIPT TWO}", 90, False)),
        *(("9" * 40, 90, False), ("", 90, False)),
    ],
)
def test_a_program_for_another_gpu_is_named_with_the_remedy(wanted, capability, fits):
    call = f'kernel = torch.cuda._compile_kernel(S, "k", compute_capability="{wanted}")\n'
    why = NVRTC.unfit_gpu(f"import torch\n{call}", capability)
    assert (not why) is fits
    if why:
        assert f"'{wanted}'" in why
        assert "leave it out" in why


def test_descriptors_know_threads_warps_and_shared_memory():
    names = ("memory_access", "parallelism", "compute_pattern")
    found = {
        name: tuple(NVRTC.describe(honest(f"gpu_nvrtc_{name}"))[each] for each in names)
        for name in ("gate", "rowsum", "matmul")
    }
    assert found == {
        "gate": ("scalar", "threads", "elementwise"),
        "rowsum": ("scalar", "threads+simd", "reduction"),
        "matmul": ("blocked", "threads", "tiled"),
    }
    wide = SOURCE.replace("const float* from", "const float4 first; const float* from")
    assert NVRTC.describe(wide)["memory_access"] == "vector"


def test_words_that_are_not_its_own_show_nothing():
    assert detect_language("from torch.cuda import _compile_kernel as c\nk = c(S, 'k')\n") is NVRTC
    assert detect_language("def _compile_kernel(s): ...\n_compile_kernel('x')\n") is not NVRTC
    assert detect_language("cuda_source = ''\nk = torch.cuda._compile_kernel(S, 'k')\n") is NVRTC


def test_a_torch_without_cuda_lacks_it_and_the_cpu_refuses_it():
    assert "CUDA" in NVRTC.missing() or torch.version.cuda
    assert "NVRTC runs on device=cuda; for device=cpu write C++" in refusal(NVRTC, CPU)
    assert not refusal(NVRTC, CUDA)
