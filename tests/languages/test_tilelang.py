"""TileLang without a GPU: what its programs become for an NVIDIA H100, stubs, what is kept.

Invariants: each honest program of the corpus compiles for capability 9.0 into the build's cache, by
which a profile knows its kernel; the cheats, the programs of the knowledge document and the example
of the prompt become CUDA C++; float32 products are TF32 by `T.gemm` alone; a stubbed launch does
nothing, makes the outputs that the kernel would have made, and is noted; a compiler's message is
the candidate's fault, whichever part of the compiler says it. A missing package, one beside another
TVM-FFI and a missing nvcc are named with the remedy.
"""

import os
from pathlib import Path

import pytest
import torch

from evolve.core.devices import CPU, CUDA
from evolve.languages import cuda
from evolve.languages.builds import BuildError
from evolve.languages.registry import detect_language, refusal
from evolve.languages.tilelang import TILELANG
from evolve.worker.ipc.messages import ErrorKind
from evolve.worker.runner.errors import explain, kind_of
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

lacking = TILELANG.missing()
with_tilelang = pytest.mark.skipif(bool(lacking), reason=lacking)
EXAMPLE = example_of(TILELANG)
BLOCKS = python_blocks("tilelang-kernels")
NAMES = honest_names("tilelang")
HOPPER = '{"kind": "cuda", "arch": "sm_90a"}'
CONSTANTS = {
    "gate": (1024,),
    "softmax": (131, 256),
    "product": (32, 32),
    "scale": (1024,),
    "row_sums": (4, 1024),
    "half_product": (128, 128, 32),
}


def test_its_marks_are_the_decorators():
    for line in ("import tilelang.language as T", "from tilelang import language as T"):
        assert detect_language(f"{line}\n\n\n@T.prim_func\ndef k(x): ...\n") is TILELANG
        assert detect_language(f"{line}\n\n\n@T.macro\ndef k(x): ...\n") is not TILELANG
    assert detect_language("import tilelang\n\n\n@tilelang.jit\ndef k(x): ...\n") is TILELANG
    assert detect_language("from tilelang import jit\n\n\n@jit()\ndef k(x): ...\n") is TILELANG


def test_descriptors_tell_a_product_from_a_pass():
    words = "memory_access", "compute_pattern", "precision_path", "kernels"
    assert described(TILELANG, *words) == {
        "gate": ("vector", "elementwise", "fp32", 1.0),
        "softmax": ("vector", "two_pass", "fp32", 1.0),
        "matmul": ("blocked", "tiled", "fp32", 1.0),
    }
    cheat = (CHEATS / "gpu_n103_tilelang_single_tf32.py").read_text()
    assert TILELANG.describe(cheat)["precision_path"] == "tf32"


def test_without_a_gpu_it_is_refused_and_the_remedy_named():
    assert "TileLang runs on device=cuda; for device=cpu write C++" in refusal(TILELANG, CPU)
    assert not refusal(TILELANG, CUDA)


@pytest.mark.parametrize(
    ("ffi", "fits"), [("0.1.12", True), ("0.1.13", False), ("0.1.15.post2", False)]
)
def test_one_beside_another_tvm_ffi_asks_for_an_interpreter_of_its_own(
    tmp_path: Path, monkeypatch, ffi, fits
):
    for name, version in {"tilelang": "0.1.15", "apache_tvm_ffi": ffi}.items():
        about = tmp_path / f"{name}-{version}.dist-info"
        about.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        needs = "Requires-Dist: apache-tvm-ffi<0.1.13,>=0.1.11\n" if name == "tilelang" else ""
        (about / "METADATA").write_text(text + needs)
    (tmp_path / "tilelang.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    remedy = (
        f"tilelang 0.1.15 needs apache-tvm-ffi<0.1.13, here is {ffi}; install tilelang in an "
        "interpreter of its own, and name it by device.python=PATH"
    )
    assert TILELANG.missing_package() == ("" if fits else remedy)


@pytest.mark.skipif(not TILELANG.missing_package(), reason="tilelang is installed")
def test_where_it_is_missing_the_remedy_is_named(monkeypatch):
    why = TILELANG.missing_package(honest("gpu_tilelang_gate"))
    remedy = "install tilelang in an interpreter of its own, and name it by device.python=PATH"
    assert why == f"tilelang is not installed; {remedy}"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(cuda, "DEFAULT_HOME", "/nonexistent")
    assert TILELANG.missing_tools().endswith("set CUDA_HOME, or pip install 'tilelang[nvcc]'")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a build in a runner that builds for a GPU that is not here."""
    folder = tmp_path / "build"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.update(TILELANG.caches(folder, True))
    os.environ["TILELANG_DEFAULT_TARGET"] = HOPPER
    from tilelang.jit import JITImpl
    from tilelang.jit.kernel import JITKernel

    for name in ("_infer_jit_mode", "compile"):
        monkeypatch.setattr(JITImpl, name, getattr(JITImpl, name))
    monkeypatch.setattr(
        JITKernel, "_compile_and_create_adapter", JITKernel._compile_and_create_adapter
    )
    assert TILELANG.keep_builds is not None
    TILELANG.keep_builds(honest("gpu_tilelang_gate"), str(folder), True)
    return folder


def written(source: str) -> str:
    """The CUDA C++ that a program's kernel becomes."""
    import tilelang
    from tilelang.backend.target import determine_target

    module = loaded(source)
    (name,) = CONSTANTS.keys() & vars(module).keys()
    function = getattr(module, name).get_tir(*CONSTANTS[name])
    target = determine_target({"kind": "cuda", "arch": "sm_90a"}, return_object=True)
    with target:
        lowered = tilelang.lower(function, target=target, enable_device_compile=False)
    text = lowered.kernel_source
    return text[text.rindex('extern "C" __global__') :]


@with_tilelang
@pytest.mark.parametrize("name", NAMES)
def test_honest_programs_compile_for_a_gpu_that_is_not_here(build: Path, name: str):
    module = loaded(honest(f"gpu_tilelang_{name}"))
    function = "product" if name == "matmul" else name
    kernel = getattr(module, function)(*CONSTANTS[function])
    assert "main_kernel" in kernel.get_kernel_source()
    assert OwnCode(str(build)).holds("main_kernel")
    assert not OwnCode(str(build)).holds("other_kernel")
    assert [*build.rglob("*.cubin")]


@with_tilelang
@pytest.mark.usefixtures("build")
def test_products_of_float32_are_tf32_by_gemm_alone():
    exact = written(honest("gpu_tilelang_matmul"))
    cheat = written((CHEATS / "gpu_n103_tilelang_single_tf32.py").read_text())
    assert "mma" not in exact
    assert "tl::mma_sync<tl::DataType::kTensorFloat32" in cheat


@with_tilelang
@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("name", ["n102_tilelang_decoy", "n104_tilelang_side_stream"])
def test_cheats_compile(name: str):
    assert "main_kernel" in written((CHEATS / f"gpu_{name}.py").read_text())


@with_tilelang
@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(
    ("number", "words"), [(0, "tl::AllReduce<tl::SumOp"), (1, "tl::wgmma_ss<")]
)
def test_programs_of_the_knowledge_document_compile(number: int, words: str):
    assert len(BLOCKS) == 2
    assert words in written(BLOCKS[number])


@with_tilelang
@pytest.mark.usefixtures("build")
def test_the_example_of_the_prompt_compiles():
    assert detect_language(EXAMPLE) is TILELANG
    assert "float factor" in written(EXAMPLE)


@with_tilelang
@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("makes_outputs", [False, True])
def test_a_stubbed_launch_does_nothing_and_is_noted(makes_outputs: bool):
    source = honest("gpu_tilelang_gate")
    if makes_outputs:
        source = source.replace("@tilelang.jit", "@tilelang.jit(out_idx=[-1])")
    with stub_custom() as skipped:
        module = loaded(source)
        given = torch.ones(1000)
        if makes_outputs:
            found = module.gate(256)(given)
        else:
            found = torch.zeros(1000)
            module.gate(256)(given, found)
            assert not found.any()
    assert found.shape == (1000,)
    assert skipped == ["main"]


SYNTAX, BODY = "T.max(value, 0.0)", "y[at * block + i] ="
EXTERN = 'T.call_extern("float32", "not_there", value)'


@with_tilelang
@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        (SYNTAX, "T.maxx(value, 0.0)", r"line \d+ in main: .*\nAttributeError: .*maxx"),
        (SYNTAX, "max_of(value, 0.0)", r"line \d+ in main: .*\nNameError: .*max_of"),
        (BODY, "y[at * block + i, 1] =", r"line \d+ in main: y\["),
        ("float32", "float33", "Check failed: data_bits"),
        ("T.Parallel(block)", "T.Parallel(block, 2)", "TypeError: Mismatched type"),
        (SYNTAX, EXTERN, r'error: identifier "not_there" is undefined'),
    ],
)
def test_a_compilers_message_is_the_candidates_fault(right: str, wrong: str, words: str):
    source = honest("gpu_tilelang_gate")
    assert right in source
    with pytest.raises(BuildError, match=words) as caught:
        loaded(source.replace(right, wrong)).gate(256)
    assert kind_of(caught.value) is ErrorKind.COMPILE
    assert str(Path.cwd()) not in explain(caught.value, "program.py")


@with_tilelang
@pytest.mark.usefixtures("build")
def test_a_layout_that_contradicts_itself_is_the_candidates_fault():
    source = BLOCKS[0].partition("if torch.cuda.is_available():")[0]
    turned = source.replace("parts[i, j] +=", "parts[j, i] = parts[i, j] +")
    assert turned != source
    with pytest.raises(BuildError, match="Check failed"):
        loaded(turned).row_sums(4, 4)
