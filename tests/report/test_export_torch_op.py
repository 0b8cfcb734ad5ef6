"""Winners as PyTorch operators: what is written, and whether what is written can be trusted.

Invariants:
1. The folder imports nothing of ours, and its own tests pass for an honest winner: C++ and Triton,
   one output or a tree, parameters and buffers, None, lists and integers among the inputs.
2. The written tests fail, by a name that says it, for a winner that is wrong, changes its inputs,
   remembers an earlier call, or returns the same memory twice; one that hangs is ended.
3. A task that no functional operator can stand for is refused with the reason, before anything is
   written.
4. On a machine without the judged device nothing of the kernel is loaded, and that is said.
"""

import ast
import base64
import io
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.task import Case, Task
from evolve.report.export.check import Checks, run_tests
from evolve.report.export.examine import examine
from evolve.report.export.torch_op import Facts, export_torch_op
from evolve.worker.correctness import tolerance
from tests.report.kernels import (
    BATCH_NORM,
    HEADER,
    LINEAR,
    MANY,
    as_kernel,
    elementwise,
    example,
    shipped,
)

HERE = Facts(
    device="cpu",
    architecture=platform.machine(),
    gain="2.50x (95 % interval 2.45 to 2.56) over PyTorch eager, verified.",
    provenance=("run demo, step 3",),
)
ELSEWHERE = Facts(device="cuda", architecture="sm_90", gain="2x (95 % interval 1.9 to 2.1).")
RELU = elementwise("return x.relu()")


def exported(folder: Path, task: Task, source: str, facts: Facts = HERE, **assignment) -> Path:
    return export_torch_op(folder, source, assignment, task, facts)


def outcomes(checks: Checks) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for test in checks.tests:
        found[test.outcome].add(test.name.partition("[")[0])
    return found


def passes(folder: Path) -> None:
    checks = run_tests(folder)
    assert checks.passed, (checks.fault, [f"{test.name}: {test.reason}" for test in checks.failed])
    assert "test_it_compiles_into_one_graph" in outcomes(checks)["passed"]


def failed_tests(folders: list[Path], chosen: str) -> set[tuple[str, str]]:
    """Folder and name of every written test that fails, all in one process."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *(f"{folder.name}/test_op.py" for folder in folders)),
            *("-q", "-k", chosen, "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"),
        ],
        cwd=folders[0].parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return set(re.findall(r"^FAILED (\w+)/test_op\.py::(\w+)", done.stdout, re.MULTILINE))


@pytest.mark.slow
def test_a_cpp_winner_becomes_an_operator_that_passes_its_own_tests(tmp_path: Path):
    task, source = shipped("rmsnorm", "two_pass.py", {"TOKENS": 3, "FEATURES": 7})
    folder = exported(tmp_path / "rmsnorm_kernel", task, source, ROWS_PER_TASK=16, LANES=64)
    kernel = (folder / "kernel.py").read_text()
    assert "ROWS_PER_TASK = 16;" in kernel
    assert "TUNABLE" not in kernel
    passes(folder)
    assert {path.name for path in folder.iterdir()} == {
        *("__init__.py", "kernel.py", "op.py", "reference.py", "test_op.py", "README.md"),
    }


@pytest.mark.slow
def test_a_triton_winner_passes_in_the_interpreter(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    task, source = shipped("softmax", "seed_triton.py", {"ROWS": 3, "COLUMNS": 7})
    passes(exported(tmp_path / "softmax_kernel", task, source))


@pytest.mark.slow
def test_trees_lists_none_integers_parameters_and_buffers_pass(tmp_path: Path):
    folder = exported(tmp_path / "many_kernel", example(MANY), as_kernel(MANY))
    assert '"times": 3' in (folder / "op.py").read_text()
    passes(folder)


@pytest.mark.slow
def test_an_argument_that_is_absent_in_one_case_is_optional(tmp_path: Path):
    masked = elementwise("return x if mask is None else x * mask").replace(
        "self, x", "self, x, mask"
    )
    masked = masked.replace(
        "torch.randn(8, 16)", "torch.randn(8, 16), torch.rand(16) if MASK else None"
    )
    cases = (Case(name="with"), Case(name="without", constants={"MASK": 0}))
    folder = exported(
        tmp_path / "masked", example(f"MASK = 1\n\n\n{masked}", cases=cases), as_kernel(masked)
    )
    assert "Tensor? mask" in (folder / "op.py").read_text()
    assert failed_tests([folder], "kernel_is_right or accepts or drop_in") == set()


def test_nothing_in_the_folder_imports_ours(tmp_path: Path):
    folder = exported(tmp_path / "many_kernel", example(MANY), as_kernel(MANY))
    assert imported_by(folder) <= {"torch", "pytest", *sys.stdlib_module_names}


def imported_by(folder: Path) -> set[str]:
    names = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").partition(".")[0])
    return names


CAPTURED = """\
from evolve.testing.suite_tasks.captured import drawn
from evolve.testing.suite_tasks import captured as again
from evolve.testing.checks import close, sampled
import torch
from torch import nn

CALL = "8"
ROWS = {"tensor": (8, 16), "dtype": "float32", "low": -2.0, "high": 2.0, "mean": 0.0, "std": 1.0}
KEPT = {"tensor": (16,), "dtype": "float32", "file": "kept/scale.pt"}
CALLS = {"8": [ROWS, KEPT], "4": [ROWS | {"tensor": (4, 16)}, KEPT]}


class Model(nn.Module):
    def forward(self, x, scale):
        return x.relu() * scale


def get_inputs():
    assert again.drawn is drawn
    return drawn(globals(), CALLS[CALL])


def get_init_inputs():
    return []
"""


def captured_task(**files: bytes) -> Task:
    kept = io.BytesIO()
    torch.save(torch.arange(16.0), kept)
    beside = {"kept/scale.pt": kept.getvalue()} | files
    texts = {name: base64.b64encode(content).decode() for name, content in beside.items()}
    cases = (Case(name="8", constants={"CALL": "8"}), Case(name="4", constants={"CALL": "4"}))
    return Task(name="captured", source=CAPTURED, cases=cases, files=texts)


def test_a_captured_task_takes_its_helpers_and_kept_values_along(tmp_path: Path):
    kernel = elementwise("return x.relu() * scale").replace("self, x", "self, x, scale")
    folder = exported(tmp_path / "captured_kernel", captured_task(), as_kernel(kernel))
    assert imported_by(folder) <= {"torch", "pytest", *sys.stdlib_module_names}
    assert failed_tests([folder], "kernel_is_right or accepts or drop_in or other_shapes") == set()


@pytest.mark.parametrize(
    "statement",
    [
        "import evolve.testing.checks",
        "import evolve.testing.checks as checks",
        "import os, evolve",
        "from evolve.testing.checks import *",
        "from evolve import testing",
        "import importlib; importlib.import_module('evolve.testing.checks')",
        "__import__('evolve.testing.checks')",
        "try:\n    import evolve\nexcept ImportError:\n    pass",
    ],
)
def test_an_import_that_the_folder_cannot_take_along_is_refused(tmp_path: Path, statement: str):
    task = example(f"import torch\n{statement}\n{RELU.removeprefix('import torch')}")
    with pytest.raises(UsageError, match=r"^.*line \d.*evolve.*; write `from evolve\.MODULE .*$"):
        exported(tmp_path / "refused", task, as_kernel(RELU))
    assert not (tmp_path / "refused").exists()


def test_a_task_with_modules_of_its_own_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"imports helper\.py.*--as module"):
        exported(tmp_path / "refused", captured_task(**{"helper.py": b"X = 1"}), as_kernel(RELU))
    assert not (tmp_path / "refused").exists()


def test_a_file_beside_the_task_that_would_be_replaced_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"README\.md"):
        exported(tmp_path / "refused", captured_task(**{"README.md": b"mine"}), as_kernel(RELU))
    assert not (tmp_path / "refused").exists()


def test_the_written_tests_have_the_judges_tolerances(tmp_path: Path, monkeypatch):
    names = ("KAPPA", "PEAK", "BASE_ROUNDINGS", "WALK_ROUNDINGS", "OPERAND_ROUNDINGS")
    for number, name in enumerate(names):
        monkeypatch.setattr(tolerance, name, 101.5 + number)
    text = (exported(tmp_path / "relu", example(RELU), as_kernel(RELU)) / "test_op.py").read_text()
    assert [f"{101.5 + n}" in text for n, _ in enumerate(names)] == [True] * len(names)


def test_the_readme_says_gain_cases_and_provenance(tmp_path: Path):
    task, source = shipped("rmsnorm", "two_pass.py", {"TOKENS": 3, "FEATURES": 7})
    folder = exported(tmp_path / "rmsnorm_kernel", task, source, ROWS_PER_TASK=16)
    text = (folder / "README.md").read_text()
    for fact in (HERE.gain, "run demo, step 3", "| odd |", "(3, 7)", "`ROWS_PER_TASK = 16`"):
        assert fact in text


BAD = {
    "wrong": ("return x.relu() + 1e-3", "", "test_the_kernel_is_right"),
    "shapeless": ("return x.relu()[:-1]", "", "test_the_kernel_is_right"),
    "mutating": ("y = x.relu(); x.zero_(); return y", "", "test_the_kernel_is_right"),
    "remembering": ("return DONE.setdefault(0, x.relu())", "DONE = {}", "test_results_outlive"),
    "recycling": ("return torch.clamp(x, 0, out=OUT)", "OUT = torch.empty(8, 16)", "test_results"),
    "unbuildable": ("return x.relu()", "raise RuntimeError('no compiler')", "test_pytorch_accepts"),
}


@pytest.mark.slow
def test_the_written_tests_fail_for_dishonest_and_broken_winners(tmp_path: Path):
    folders = []
    for name, (forward, body, _) in BAD.items():
        source = f"{HEADER}{body}\n\n\n" + as_kernel(elementwise(forward)).removeprefix(HEADER)
        folders.append(exported(tmp_path / f"{name}_kernel", example(RELU, name), source))
    folders.append(exported(tmp_path / "good_kernel", example(RELU, "good"), as_kernel(RELU)))
    failed = failed_tests(folders, "kernel_is_right or outlive or accepts")
    for name, (_, _, test) in BAD.items():
        assert any(at == f"{name}_kernel" and found.startswith(test) for at, found in failed), name
    assert not any(at == "good_kernel" for at, _ in failed)


PACKS_WEIGHTS = (
    HEADER
    + """\
class ModelNew(nn.Module):
    packed = None

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(16, 16))

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.t().contiguous()
        return x @ self.packed
"""
)


@pytest.mark.slow
def test_odd_but_honest_winners_pass(tmp_path: Path):
    view = elementwise("return x.t(), x[0], x")
    halves = elementwise("return x.split(4)")
    folders = [
        exported(tmp_path / "packs", example(LINEAR, "packs"), PACKS_WEIGHTS),
        exported(tmp_path / "views", example(view, "views"), as_kernel(view)),
        exported(tmp_path / "halves", example(halves, "halves"), as_kernel(halves)),
    ]
    assert failed_tests(folders, "kernel_is_right or outlive or accepts or layout") == set()


@pytest.mark.slow
def test_a_winner_that_hangs_is_ended_at_the_deadline(tmp_path: Path):
    source = as_kernel(RELU).replace("return x.relu()", "import time; time.sleep(1000)")
    folder = exported(tmp_path / "hanging", example(RELU), source)
    checks = run_tests(folder, deadline_s=6)
    assert not checks.passed
    assert "6 s" in checks.fault


@pytest.mark.slow
def test_without_the_judged_device_the_kernel_is_not_loaded(tmp_path: Path):
    source = "raise RuntimeError('loaded')\n" + as_kernel(LINEAR)
    folder = exported(tmp_path / "elsewhere", example(LINEAR), source, ELSEWHERE)
    checks = run_tests(folder)
    assert checks.passed, checks
    found = outcomes(checks)
    assert "test_the_kernel_is_right_and_leaves_its_inputs_alone" in found["skipped"]
    assert "test_it_is_captured_in_a_cuda_graph" in found["skipped"]
    assert "test_on_another_device_the_reference_is_used" in found["passed"]
    assert any("sm_90" in test.reason for test in checks.skipped)


def test_a_huge_task_is_examined_without_its_memory(tmp_path: Path):
    huge = elementwise("return x @ x", inputs="torch.rand(1 << 20, 1 << 20)")
    folder = exported(tmp_path / "huge", example(huge), as_kernel(huge), ELSEWHERE)
    assert "(1048576, 1048576)" in (folder / "op.py").read_text()


def test_a_huge_model_is_examined_without_its_memory_in_any_precision():
    huge = LINEAR.replace("16, 16", "1 << 20, 1 << 20").replace("8, 16", "8, 1 << 20")
    (case,) = examine(example(huge, precision="bf16")).cases
    assert [output.dtype for output in case.outputs] == [torch.bfloat16]


def test_a_reference_that_looks_at_values_is_examined_for_real(tmp_path: Path):
    looking = elementwise("return x.relu() if x.sum() > -1e9 else x")
    folder = exported(tmp_path / "looking", example(looking), as_kernel(looking))
    assert "Like(torch.float32, (8, 16))" in (folder / "op.py").read_text()


@pytest.mark.slow
def test_the_runs_precision_and_size_are_frozen(tmp_path: Path):
    source = LINEAR.replace("torch.randn(8, 16)", "torch.randn(ROWS, 16)")
    sized = f'ROWS, UNUSED = 2, 3\nSIZES = {{"tiny": {{"ROWS": 5}}}}\n\n\n{source}'
    task = example(sized, size="tiny", precision="bf16", cases=(Case(name="a"),))
    folder = exported(tmp_path / "halved", task, as_kernel(LINEAR))
    assert "Like(torch.bfloat16, (5, 16))" in (folder / "op.py").read_text()
    assert failed_tests([folder], "kernel_is_right or accepts") == set()


@pytest.mark.slow
def test_a_module_that_depends_on_training_is_the_reference_while_it_trains(tmp_path: Path):
    exported(tmp_path / "norm", example(BATCH_NORM), as_kernel(BATCH_NORM))
    code = (
        "import torch, norm.op\nmodel = norm.op.Model()\nwith torch.no_grad():\n"
        "    print(model.fallback_reason(torch.randn(8, 16)))\n"
        "    print(model.eval().fallback_reason(torch.randn(8, 16)))\n"
    )
    assert printed(code, tmp_path) == ["the module is in training mode; call eval()", "None"]
    linear = exported(tmp_path / "linear", example(LINEAR), as_kernel(LINEAR))
    assert "training mode" not in (linear / "op.py").read_text()


@pytest.mark.slow
def test_a_winner_replays_no_graph_of_its_own_for_parameters_that_may_differ(tmp_path: Path):
    call = "\n    def __call__(self, x):\n        print(self.replays_graph)\n"
    source = f"{as_kernel(LINEAR).rstrip()}\n{call}        return super().__call__(x)\n"
    exported(tmp_path / "linear", example(LINEAR), source)
    code = (
        "import torch, linear.op\nmodel = linear.op.Model().eval()\nwith torch.no_grad():\n"
        "    model(torch.randn(8, 16))\n"
    )
    assert printed(code, tmp_path) == ["False"]


@pytest.mark.slow
def test_the_reason_for_a_fallback_is_said(tmp_path: Path):
    exported(tmp_path / "linear", example(LINEAR), as_kernel(LINEAR))
    code = """
import torch, linear.op
model, x = linear.op.Model().eval(), torch.randn(8, 16)
print(model.fallback_reason(x))
with torch.no_grad():
    print(model.fallback_reason(x[:4]))
    print(model.fallback_reason(x.to("meta")))
    with torch.autocast("cpu"):
        print(model.fallback_reason(x))
    print(model.fallback_reason(x))
    try:
        linear.op.example(x[:4], model.weight, 0)
    except ValueError as error:
        print(error)
"""
    words = ("gradients", "no case", "not all tensors", "autocast", "None", "case default: x")
    for line, word in zip(printed(code, tmp_path), words, strict=True):
        assert word in line


def printed(code: str, cwd: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


REFUSED = {
    "writes into its argument 0": elementwise("return x.add_(1)"),
    "takes *xs": elementwise("return xs[0]").replace("self, x", "self, *xs"),
    "takes no tensor": elementwise("return torch.zeros(x)", inputs="4"),
    "returns a Pair": "import collections\nPair = collections.namedtuple('Pair', 'a')\n"
    + elementwise("return Pair(x)"),
    "nesting": elementwise(
        "return x + y['a']", inputs="torch.ones(2), {'a': torch.ones(2)}"
    ).replace("self, x", "self, x, y"),
    "get_init_inputs) is a tensor": LINEAR.replace("__init__(self)", "__init__(self, t)").replace(
        "return []", "return [torch.ones(1)]"
    ),
    "expanded": elementwise("return x + 1", inputs="torch.rand(1, 4).expand(3, 4)"),
    "called run": elementwise("return run").replace("self, x", "self, run"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_no_operator_can_stand_for_is_refused_with_the_reason(reason: str, tmp_path: Path):
    with pytest.raises(UsageError, match=re.escape(reason)) as refused:
        exported(tmp_path / "refused", example(REFUSED[reason]), as_kernel(RELU))
    assert "--as module" in str(refused.value)
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("my-kernel", "import"), ("class", "import"), ("torch", "hide"), ("json", "hide")],
)
def test_a_folder_that_python_could_not_import_is_refused(name: str, reason: str, tmp_path: Path):
    with pytest.raises(UsageError, match=reason):
        exported(tmp_path / name, example(RELU), as_kernel(RELU))


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    target = tmp_path.rename(tmp_path.with_name("occupied"))
    with pytest.raises(UsageError, match="not empty"):
        exported(target, example(RELU), as_kernel(RELU))
    assert [path.name for path in target.iterdir()] == ["mine.py"]
