"""TritonBench and KernelBench-X: a function, a divider, tests that call it, and a benchmark.

Invariants, on checkouts of our own text in the suites' form:
- inputs are those of the tests' calls, fresh for each seed, and each kind of call is one case;
- times are taken of the benchmark's inputs, up to a size;
- files that are not of the form are named, and the others stay usable;
- a kernel with a runner that checks it is reference and start, with the inputs of the check.
"""

import json
from pathlib import Path

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.tasks.suites import suite_commit, suite_problems
from evolve.trajectories.decontamination.licences import allows_training, licence_of
from evolve.worker.correctness.cases import LoadedTask, load_task

DIVIDER = "#" * 146
SCALED = f"""import torch

def scaled(x, factor=2.0, *, shift=None):
    y = x * factor
    return y if shift is None else y + shift

{DIVIDER}

import torch

def test_scaled():
    torch.manual_seed(7)
    results = {{}}
    x = torch.randn(4, 8, device="cuda")
    results["one"] = scaled(x)
    results["two"] = scaled(x.cuda(), shift=torch.ones(8, device=torch.device("cuda")))
    for _ in range(3):
        results["more"] = scaled(torch.randn(4, 8, device="cuda"), 3.0)
    print(results)
    return results

test_results = test_scaled()
"""
NOISY = f"""import torch

def noisy(x, p):
    return torch.nn.functional.dropout(x, p)

{DIVIDER}
import torch
results = [noisy(torch.ones(64), 0.5), noisy(torch.ones(64), 0.0)]
"""
EMPTY = f"""import torch

def rooted(x, y=None):
    return x.sqrt() if y is None else (x.sqrt(), y.sqrt())

{DIVIDER}
import torch
full, none, bad = torch.rand(64), torch.rand(0), -torch.ones(8)
results = [rooted(full), rooted(none), rooted(bad), rooted(full, bad), rooted(full, full)]
"""
BENCHMARK = """
from performance_utils import Performance_Metrics, do_bench_config
from somewhere.scaled import scaled
import torch

class performance_metrics(Performance_Metrics):
    def __init__(self, dtype=None, is_backward=False, **kwargs):
        super().__init__("scaled", dtype=dtype, is_backward=is_backward, **kwargs)

    def get_input_tensors(self):
        self.input_tensors = []
        self.output_size = self.call_op(torch.zeros(4) + torch.full((4,), 2.0)).numel()
        for power in range(6, 40):
            self.input_tensors.append(torch.rand(2 ** power, dtype=self.dtype))

    def to_cuda(self, tensor):
        return tensor.cuda()

    def call_op(self, tensor):
        return scaled(tensor, 4.0)

if __name__ == "__main__":
    raise SystemExit
"""
KERNEL = f"""import torch
import triton

@triton.jit
def kernel(x):
    pass

def doubled(x):
    return x * 2

def halved(x):
    return x / 2

{DIVIDER}
import torch
halved(torch.rand(4))
halved(torch.rand(4))
result_gold = doubled(torch.rand(4))
"""


@pytest.fixture(scope="module")
def tritonbench(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tritonbench")
    write(root / "data/TritonBench_T_v1/scaled.py", SCALED)
    write(root / "data/TritonBench_T_v1/noisy.py", NOISY)
    write(root / "data/TritonBench_T_v1/rooted.py", EMPTY)
    write(root / "data/TritonBench_T_v1/torn.py", "def torn():\n    pass\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    write(root / "data/TritonBench_T_v1/absent.py", pointer)
    write(root / "data/TritonBench_G_v1/two_kernels.py", KERNEL)
    catalogue = [{"file": "scaled.py", "difficulty": 3}, {"file": "noisy.py", "difficulty": 1}]
    write(root / "data/TritonBench_T_v1.jsonl", json.dumps(catalogue))
    write(root / "performance_metrics/perf_T/golden_metrics/scaled_perf.py", BENCHMARK)
    write(root / ".git/HEAD", "ref: refs/heads/main\n")
    write(root / ".git/packed-refs", "# pack-refs\n" + "ab" * 20 + " refs/heads/main\n")
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def loaded(spec: str, root: Path, size: str = "tiny") -> LoadedTask:
    return load_task(find_task(spec, checkout=root, size=size))


def test_each_kind_of_call_in_the_tests_is_a_case_with_fresh_inputs(tritonbench: Path):
    cases = [case for case in loaded("tritonbench_t:scaled", tritonbench).cases if not case.timed]
    assert [case.name for case in cases] == ["tests/group0", "tests/group1", "tests/group2"]
    assert [case.inputs(1)[1] for case in cases] == [2.0, 2.0, 3.0]
    assert cases[1].inputs(1)[2].equal(torch.ones(8))
    for case in cases:
        x, *_ = case.inputs(1)
        assert x.equal(case.inputs(1)[0])
        assert not x.equal(case.inputs(2)[0])  # though the tests seed their generator
        (outcome,) = case.reference(case.model(1), case.inputs(1))
        assert outcome.shape == x.shape


def test_times_are_taken_of_the_benchmarks_inputs_up_to_a_size(tritonbench: Path):
    for size, most in (("tiny", 2**14), ("cpu", 2**20)):
        cases = loaded("tritonbench_t:scaled", tritonbench, size).cases
        sizes = [case.inputs(1)[0].numel() for case in cases if case.timed]
        assert (sizes[0], sizes[-1], len(sizes)) == (64, most, 3)


def test_calls_that_are_random_are_left_out(tritonbench: Path):
    (case,) = loaded("tritonbench_t:noisy", tritonbench).cases
    assert case.timed  # there is no benchmark
    assert case.inputs(1)[1] == 0.0


def test_calls_without_a_number_to_judge_by_are_left_out(tritonbench: Path):
    cases = loaded("tritonbench_t:rooted", tritonbench).cases
    assert [len([x for x in case.inputs(1) if x is not None]) for case in cases] == [1, 2]
    for case in cases:
        outcomes = case.reference(case.model(1), case.inputs(1))
        assert all(one.isfinite().all() and one.numel() for one in outcomes)


def test_files_that_are_not_of_the_form_are_named(tritonbench: Path):
    with pytest.raises(UsageError, match=r"torn\.py has 0 dividers"):
        find_task("tritonbench_t:torn", checkout=tritonbench)
    with pytest.raises(UsageError, match=r"absent\.py is a pointer of Git LFS.*git lfs pull"):
        find_task("tritonbench_t:absent", checkout=tritonbench)
    with pytest.raises(UsageError, match=r"has no data/TritonBench_T_v1"):
        suite_problems("tritonbench_t", path=str(tritonbench / "data"))


def test_difficulty_is_the_level_and_the_commit_is_known(tritonbench: Path):
    levels = {p.label: p.level for p in suite_problems("tritonbench_t", path=str(tritonbench))}
    assert levels == {"absent": "", "noisy": "1", "rooted": "", "scaled": "3", "torn": ""}
    (only,) = suite_problems("tritonbench_t", path=str(tritonbench), levels=["3"])
    assert only.spec == "tritonbench_t:scaled"
    assert suite_commit("tritonbench_t", str(tritonbench)) == "ab" * 20


def test_an_existing_kernel_is_what_a_search_starts_from_and_no_export_has_it(tritonbench: Path):
    task = find_task("tritonbench_g:two_kernels", checkout=tritonbench)
    (seed,) = task.seeds
    assert "class ModelNew(" in seed
    assert "return halved(x)" in seed  # called more often
    assert "test" not in seed
    assert not allows_training(licence_of(task.source))


QUANTISED = f"""import torch

def rounded(x):
    return (x * 8).round() / 8

{DIVIDER}
import sys, os
sys.path.append(os.path.abspath("utils"))
from draws import draw
test_results = rounded(draw((16,), mode="outlier"))
"""


@pytest.fixture(scope="module")
def kernelbench_x(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("kbx")
    catalogue = [
        {
            "file": "Quantization/rounded.py",
            "difficulty": 2,
            "precision_thresholds": {"cosine_sim": 0.9, "l1_relative": 0.1, "rmse": 0.1},
        },
        {"file": "Math/scaled.py", "difficulty": 1},
        {"file": "Math/missing.py", "difficulty": 1},
    ]
    write(root / "data/kernelbenchx_v1.json", json.dumps(catalogue))
    write(root / "data/kernelbenchx/Quantization/rounded.py", QUANTISED)
    write(root / "data/kernelbenchx/Math/scaled.py", SCALED)
    write(root / "data/kernelbenchx/Math/left_out.py", SCALED)
    write(
        root / "utils/draws.py",
        "import torch\ndef draw(shape, mode):\n    return torch.randn(*shape, device='cuda')\n",
    )
    return root


def test_the_catalogue_says_what_is_in_kernelbench_x(kernelbench_x: Path):
    found = [p.label for p in suite_problems("kernelbench_x", path=str(kernelbench_x))]
    assert found == ["Quantization/rounded", "Math/scaled", "Math/missing"]
    with pytest.raises(UsageError, match=r"missing\.py cannot be read"):
        find_task("kernelbench_x:Math/missing", checkout=kernelbench_x)


def suite_says(task: Task, change) -> bool:
    case = load_task(task).cases[0]
    inputs = case.inputs(1)
    (own,) = case.reference(case.model(1), inputs)
    assert case.suite_check is not None
    return case.suite_check(change(own), own, inputs)[0]


def test_its_rule_is_that_of_the_catalogue(kernelbench_x: Path):
    quantised = find_task("kernelbench_x:Quantization/rounded", checkout=kernelbench_x)
    plain = find_task("kernelbench_x:Math/scaled", checkout=kernelbench_x)
    assert quantised.category == "quantization"
    assert suite_says(quantised, lambda own: own * 1.01)
    assert not suite_says(quantised, lambda own: own * 1.2)
    assert not suite_says(plain, lambda own: own * 1.01)
    assert suite_says(plain, lambda own: own * (1 + 1e-6))
    assert not suite_says(plain, lambda own: own.double())


RUNNER = """
import importlib.util
import os

TASK_DIR = "/not/there"
os.chdir(TASK_DIR)
SHAPES = [(4, 8), (2, 6), (4, 8)]

def load_module():
    raise RuntimeError("the runner's own way to load a kernel")

def reference(x, out):
    return x * 3

def run_correctness():
    import torch
    mod = load_module()
    for number, shape in enumerate(SHAPES):
        try:
            gen = torch.Generator(device="cuda").manual_seed(number)
            x = torch.randn(*shape, device="cuda", generator=gen)
            out = mod.prepared(torch.empty_like(x))
            mod.tripled(x, out)
            if not torch.allclose(out, reference(x, out), atol=1e-3, rtol=0.25):
                return False, "too far"
        except Exception as error:
            return False, f"exception: {error}"
    return True, None
"""
TRIPLED = """
import torch

def prepared(out):
    return out

def jit(function):
    return function

@jit
def kernel(x, out):
    torch.mul(x, 3.0, out=out)

def launched(x, out):
    kernel(x, out)

def tripled(x, out):
    launched(x, prepared(out))

def unused(x):
    return x
"""


@pytest.fixture(scope="module")
def arena(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("arena")
    for label, kernel in (
        ("vllm/tripled", TRIPLED),
        ("vllm/stuck", "def prepared(out):\n  1 / 0\n\ndef tripled(x, out):\n  pass\n"),
    ):
        folder = root / "tasks/triton2triton" / label
        write(folder / "config.yaml", "task_type: triton2triton\n")
        write(folder / "source/kernel.py", kernel)
        write(folder / "scripts/task_runner.py", RUNNER)
    write(root / "tasks/triton2triton/rocm/other/config.yaml", "task_type: triton2triton\n")
    return root


def test_the_calls_of_a_runners_check_are_inputs_of_its_kernel(arena: Path):
    task = find_task("agent_kernel_arena:vllm/tripled", checkout=arena)
    first, second = load_task(task).cases
    assert (first.timed, second.timed) == (True, True)
    assert [case.inputs(1)[0].shape for case in (first, second)] == [(4, 8), (2, 6)]
    assert not first.inputs(1)[0].equal(first.inputs(2)[0])
    x, out = first.inputs(1)
    expected = first.expected(first.model(1), [x, out])
    assert expected.reference[-1].equal(x * 3)  # what the kernel writes is judged
    assert first.suite_check(x * 3.5, x * 3, [])[0]
    assert not first.suite_check(x * 4, x * 3, [])[0]
    (seed,) = task.seeds
    assert "class ModelNew" in seed
    assert "return tripled(x, out)" in seed


def test_a_kernel_that_its_own_check_cannot_call_is_named(arena: Path):
    with pytest.raises(UsageError, match="exception: division by zero"):
        load_task(find_task("agent_kernel_arena:vllm/stuck", checkout=arena))
    with pytest.raises(UsageError, match=r"has no scripts/task_runner\.py"):
        find_task("agent_kernel_arena:rocm/other", checkout=arena)
    found = suite_problems("agent_kernel_arena", path=str(arena))
    assert [one.label for one in found] == ["rocm/other", "vllm/stuck", "vllm/tripled"]
