"""Invariants of the documents that ship:

1. Each is well-formed, lies where it says, and has sources; its code that is marked `run` runs.
2. A diagnosis finds the document about it first, and every error and bottleneck has one.
3. What they say of the judge and of Triton's messages is what the code of both says.
4. They are inside the wheel.

What runs on a GPU only is compiled here.
"""

import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from triton.compiler import compile as triton_compile
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from evolve.core.evaluation import Status
from evolve.languages.registry import detect_language
from operators.knowledge import Bottleneck, Diagnosis, Evidence, load, rank
from operators.knowledge.library import SHIPPED
from tests.operators import nvrtc_library
from tests.operators.compiling import HOPPER
from tests.operators.inductor_running import imported

ROOT = Path(__file__).parents[2]
DOCUMENTS = load()
CATEGORIES = [
    "attention",
    "convolution",
    "elementwise",
    "embedding",
    "indexing",
    "loss",
    "matmul",
    "normalization",
    "pooling",
    "quantization",
    "reduction",
    "scan",
    "softmax",
    "sorting",
]

RUNNER = """
import json, runpy, sys, traceback
import torch
device, *paths = sys.argv[1:]
torch.set_default_device(device)
torch.backends.cudnn.allow_tf32 = False
failed = {}
for path in paths:
    try:
        runpy.run_path(path, run_name="__main__")
    except BaseException:
        failed[path] = traceback.format_exc()[-1500:]
print(json.dumps(failed))
"""


def snippets(language: str, kind: str = "") -> dict[str, str]:
    """Blocks to run by name; `kind` is the word after `run`: nothing, `slow` or `gpu`."""
    found = {}
    for document in DOCUMENTS:
        for number, (info, text) in enumerate(document.blocks()):
            words = info.split()
            if words == [language, "run", kind] or (not kind and words == [language, "run"]):
                found[f"{document.id}-{number}"] = text
    return found


def run_python(
    texts: dict[str, str], folder: Path, timeout: float, device: str = "cpu"
) -> dict[str, str]:
    """Tracebacks of the programs that failed, all run in one process; on the CPU interpreted."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    environment = os.environ | {
        "TRITON_INTERPRET": str(int(device == "cpu")),
        "OMP_NUM_THREADS": "1",
        "TVM_FFI_CACHE_DIR": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    paths = [str(folder / f"{name}.py") for name in texts]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, device, *paths],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# The documents that ship


@pytest.mark.slow
def test_python_and_triton_code_in_the_documents_runs(tmp_path: Path):
    texts = snippets("python")
    assert len(texts) > 25
    assert run_python(texts, tmp_path, 100) == {}


@pytest.mark.gpu
def test_code_for_gpus_runs_compiled(tmp_path: Path):
    texts = {name: text for name, text in snippets("python").items() if "@triton.jit" in text}
    assert len(texts) > 15
    texts |= {
        name: text
        for name, text in snippets("python", "gpu").items()
        if not detect_language(text).missing_package(text)
    }
    assert run_python(texts, tmp_path, 300, "cuda") == {}


@pytest.mark.slow
def test_a_snippet_that_fails_would_be_seen(tmp_path: Path):
    failed = run_python({"wrong": "assert 1 + 1 == 3\n"}, tmp_path, 30)
    assert "AssertionError" in failed[str(tmp_path / "wrong.py")]


def test_cpp_code_in_the_documents_compiles_and_runs(tmp_path: Path):
    def build_and_run(item: tuple[str, str]) -> str:
        name, text = item
        source, program = tmp_path / f"{name}.cpp", tmp_path / name
        source.write_text(text)
        flags = ["-std=c++17", "-O2", "-march=native", "-fopenmp", "-Wall"]
        built = subprocess.run(
            ["g++", *flags, source, "-o", program], capture_output=True, text=True, check=False
        )
        if built.returncode != 0:
            return f"{name}: {built.stderr}"
        ran = subprocess.run([program], capture_output=True, text=True, timeout=20, check=False)
        return f"{name}: exit {ran.returncode}, {ran.stdout}" if ran.returncode else ""

    texts = snippets("cpp")
    assert texts
    with ThreadPoolExecutor(2) as pool:
        assert not [error for error in pool.map(build_and_run, texts.items()) if error]


def descriptor(block: list[int]) -> str:
    """Of a tensor in bfloat16, as Triton's compiler calls its type."""
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return f"tensordesc<bf16{block},{layout!r}>"


def test_code_in_gluon_compiles_for_a_gpu_that_is_not_here():
    module = imported(snippets("python", "gpu")["gluon-kernels-0"])
    blocks = {"a_desc": [128, 64], "b_desc": [64, 128], "c_desc": [128, 128]}
    signature = {name: descriptor(block) for name, block in blocks.items()}
    signature |= {"steps": "i32", "STAGES": "constexpr"}
    source = GluonASTSource(module.product_kernel, signature, {(4,): 3})
    ptx = triton_compile(source, target=HOPPER, options={"num_warps": 8}).asm["ptx"]
    loop = ptx[ptx.index("wgmma.mma_async") :]
    assert loop.index("wgmma.wait_group") < loop.index("cp.async.bulk.tensor.2d.shared::cta")


@pytest.mark.skipif(nvrtc_library.library() is None, reason="there is no NVRTC")
def test_code_for_nvrtc_compiles_for_a_gpu_that_is_not_here(monkeypatch):
    made = nvrtc_library.use(monkeypatch)
    compilation, _, _ = snippets("python", "gpu")["nvrtc-kernels-0"].partition("x = torch.randn(")
    exec(compilation, {})
    assert [mangled for mangled, _ in made] == ["_Z7softmaxILi256ELi4EEvPKfPfi"]


@pytest.mark.slow
def test_code_that_builds_an_extension_runs(tmp_path: Path):
    texts = snippets("python", "slow")
    assert texts
    assert run_python(texts, tmp_path, 110) == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
def test_a_document_lies_where_it_says_and_is_what_it_says(document):
    path = Path(document.path)
    assert path.parent.name == document.part
    assert path.stem == document.id
    assert 50 <= len(path.read_text().splitlines()) <= 200
    assert {*document.tags.get("category", ())} <= {*CATEGORIES}
    runs = any(" run" in info for info, _ in document.blocks())
    if document.tested is not Evidence.UNTESTED_HARDWARE:
        assert (document.tested is Evidence.CODE_RUN) == runs
    assert document.checked
    assert len(document.sources) >= 2
    assert all(len(line) <= 200 for line in document.body.splitlines())


TRITON_MESSAGES = [
    ("compiler/code_generator.py", "Cannot access global variable"),
    ("compiler/code_generator.py", "Loop-carried variable"),
    ("compiler/code_generator.py", "between then block"),
    ("compiler/code_generator.py", "unsupported AST node type"),
    ("language/semantic.py", "range must be a power of 2"),
    ("language/semantic.py", "arguments must be of type tl.constexpr"),
    ("language/semantic.py", "Input shapes should have M"),
    ("language/semantic.py", "Cannot make_shape_compatible: incompatible dimensions"),
    (
        "language/semantic.py",
        "Mask argument cannot be block type if pointer argument is not a block",
    ),
    ("language/semantic.py", "Unsupported ptr type"),
]


@pytest.mark.parametrize(("file", "message"), TRITON_MESSAGES)
def test_messages_that_a_document_explains_are_those_of_triton(file: str, message: str):
    spec = importlib.util.find_spec("triton")
    assert spec is not None
    raised = (Path(str(spec.origin)).parent / file).read_text()
    (document,) = (found for found in DOCUMENTS if found.id == "debug-compile")
    assert message in raised
    assert message in document.body


def test_the_contract_documents_say_what_the_judge_does():
    from evolve.worker.correctness.input_families import FAMILIES, TASK_FAMILY
    from evolve.worker.session.candidate_session import BUILD_S, SETUP_S

    bodies = {document.id: document.body for document in DOCUMENTS}
    for family in {*FAMILIES} - {TASK_FAMILY}:
        assert f"`{family}`" in bodies["judge-correctness"]
        assert f"`{family}`" in bodies["debug-wrong-values"]
    assert f"| {BUILD_S:.0f} s |" in bodies["judge-contract"]
    assert f"| {SETUP_S:.0f} s each |" in bodies["judge-contract"]


def test_every_error_and_every_bottleneck_has_a_document():
    for status in {*Status} - {Status.CORRECT, Status.INFRA, Status.TIMING_UNBOUNDED}:
        assert rank(DOCUMENTS, Diagnosis(error=status)), status
    for bottleneck in Bottleneck:
        assert rank(DOCUMENTS, Diagnosis(bottleneck=bottleneck)), bottleneck
    for category in CATEGORIES:
        assert rank(DOCUMENTS, Diagnosis(category=category)), category


@pytest.mark.parametrize(
    ("diagnosis", "wanted"),
    [
        (Diagnosis(category="attention", language="triton"), "attention"),
        (Diagnosis(category="scan", device="cpu", language="cpp"), "scans"),
        (Diagnosis(error="invalid_interface"), "judge-contract"),
        (Diagnosis(error="nondeterministic", category="scan"), "debug-nondeterminism"),
        (Diagnosis(error="timeout", category="scan", language="triton"), "debug-crashes"),
        (Diagnosis(error="compile_error", language="triton"), "triton-pitfalls"),
        (Diagnosis(error="compile_error", language="cpp"), "debug-compile"),
        (Diagnosis(category="matmul", device="nvidia/hopper", language="triton"), "hopper-gemm"),
        (Diagnosis(category="matmul", bottleneck="parallelism"), "gemm-splitk-persistent"),
        (Diagnosis(category="convolution", device="amd/cdna3"), "convolution-implicit-gemm"),
        (Diagnosis(category="matmul", device="cpu", language="cpp"), "cpu-gemm"),
        (Diagnosis(bottleneck="launch"), "launch-bound"),
        (Diagnosis(bottleneck="compute", language="gluon"), "gluon-kernels"),
        (Diagnosis(bottleneck="memory", language="nvrtc"), "nvrtc-kernels"),
        (Diagnosis(bottleneck="compute", language="cute"), "cute-kernels"),
        (Diagnosis(bottleneck="memory", language="cutile"), "cutile-kernels"),
        (Diagnosis(bottleneck="compute", language="tilelang"), "tilelang-kernels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_diagnosis_finds_the_document_about_it_first(diagnosis: Diagnosis, wanted: str):
    assert rank(DOCUMENTS, diagnosis)[0][1].id == wanted


def test_the_documents_are_inside_the_wheel():
    from hatchling.builders.wheel import WheelBuilder

    builder = WheelBuilder(str(ROOT))
    packed = {file.distribution_path for file in builder.recurse_included_files()}
    for document in DOCUMENTS:
        assert str(Path("operators/knowledge") / Path(document.path).relative_to(SHIPPED)) in packed
