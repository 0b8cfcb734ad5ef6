"""Helion without a GPU: what its programs become for an NVIDIA H100, its search, stubs.

Invariants: each honest program of the corpus and the example of the prompt become one kernel of
Triton, which compiles for capability 9.0; float32 products are TF32 unless a program says
otherwise; nothing is searched; a stubbed launch does nothing and is noted. Where the package is
missing, that is said with the remedy (one for another torch: `tests/cli/test_device.py`).
"""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

from evolve.core.devices import CPU, CUDA
from evolve.languages.helion import HELION
from evolve.languages.registry import detect_language, refusal
from evolve.worker.runner.probes import stub_custom
from tests.languages.programs import CHEATS, example_of, honest, honest_names, loaded
from tests.operators.compiling import compiled

has_helion = importlib.util.find_spec("helion") is not None
lacking = HELION.missing_package()
with_helion = pytest.mark.skipif(bool(lacking), reason=lacking)
EXAMPLE = example_of(HELION)
NAMES = honest_names("helion")
SHAPES = {
    "gate": [(256, 512)],
    "softmax": [(128, 500)],
    "matmul": [(96, 128), (128, 80)],
}


def test_its_marks_are_the_decorators():
    assert detect_language("import helion\n\n\n@helion.kernel()\ndef k(x): ...\n") is HELION
    assert detect_language("from helion import kernel as k\n\n\n@k\ndef f(x): ...\n") is HELION
    assert detect_language("import helion\n\n\ndef kernel(x): ...\n") is not HELION


def test_descriptors_tell_a_product_from_a_pass():
    words = {
        name: HELION.describe(honest(f"gpu_helion_{name}"))["compute_pattern"] for name in NAMES
    }
    assert words == {"gate": "elementwise", "softmax": "two_pass", "matmul": "tiled"}


def test_without_a_gpu_it_is_refused_and_the_remedy_named():
    assert "Helion runs on device=cuda; for device=cpu write C++" in refusal(HELION, CPU)
    assert not refusal(HELION, CUDA)


@pytest.mark.skipif(has_helion, reason="helion is installed")
def test_where_it_is_missing_the_remedy_is_named():
    source = honest("gpu_helion_gate")
    assert HELION.missing_package(source) == "helion is not installed; pip install helion"


@pytest.fixture
def in_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    assert HELION.keep_builds is not None
    HELION.keep_builds("import helion", None, False)


def text_of(source: str, *shapes: tuple[int, ...]) -> tuple[str, str]:
    """The Triton that a program becomes, and its PTX."""
    import helion

    (kernel,) = (each for each in vars(loaded(source)).values() if isinstance(each, helion.Kernel))
    tensors = [torch.empty(shape) for shape in shapes]
    if kernel.name == "scale":
        tensors = [tensors[0].view(-1), 2.0]
    elif kernel.name == "gate":
        tensors = [tensors[0].view(-1)]
    (config,) = kernel.configs
    text = kernel.bind(tensors).to_triton_code(config)
    found = []

    def launcher(triton_kernel, _grid, *given, num_warps, num_stages, **named):
        names = [parameter.name for parameter in triton_kernel.params]
        options = {"num_warps": num_warps, "num_stages": num_stages}
        found.append((triton_kernel, dict(zip(names, given, strict=False)) | options | named))

    Path("written.py").write_text(text)
    spec = importlib.util.spec_from_file_location("written", "written.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, kernel.name)(*tensors, _launcher=launcher)
    (launch,) = found
    return text, compiled(launch)["ptx"]


@with_helion
@pytest.mark.usefixtures("in_runner")
@pytest.mark.parametrize("name", NAMES)
def test_honest_programs_compile_for_a_gpu_that_is_not_here(name: str):
    text, ptx = text_of(honest(f"gpu_helion_{name}"), *SHAPES[name])
    assert text.count("@triton.jit") == 1
    assert ".visible .entry _helion_" in ptx


@with_helion
@pytest.mark.usefixtures("in_runner")
def test_the_example_of_the_prompt_compiles():
    assert detect_language(EXAMPLE) is HELION
    _, ptx = text_of(EXAMPLE, (37, 53))
    assert "st.global" in ptx


@with_helion
@pytest.mark.usefixtures("in_runner")
def test_products_of_float32_are_tf32_unless_a_program_says_otherwise():
    shapes = SHAPES["matmul"]
    exact, _ = text_of(honest("gpu_helion_matmul"), *shapes)
    cheat, _ = text_of((CHEATS / "gpu_n94_helion_single_tf32.py").read_text(), *shapes)
    assert "input_precision='ieee'" in exact
    assert "input_precision='tf32'" in cheat


@with_helion
@pytest.mark.usefixtures("in_runner")
def test_nothing_is_searched_and_nothing_kept_outside_of_the_process():
    from helion.runtime.settings import Settings

    settings = Settings()
    assert settings.autotune_effort == "none"
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(Path.cwd())


@with_helion
@pytest.mark.usefixtures("in_runner")
def test_a_stubbed_launch_does_nothing_and_is_noted():
    program = loaded(honest("gpu_helion_softmax"))
    with stub_custom() as skipped:
        found = program.ModelNew()(torch.randn(16, 40))
    assert found.shape == (16, 40)
    assert skipped == ["_helion_softmax"]
