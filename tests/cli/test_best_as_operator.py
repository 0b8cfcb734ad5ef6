"""`evolve best --as`: what is written, what is checked, and how a failed check ends.

Invariants:
1. `-o x.py` writes a module, `-o folder` an operator, and `--as` says it outright.
2. What is written has been checked: status 0 where all its tests passed, 1 where one failed, and
   then the words name it and the folder stays.
3. What cannot be done is said with status 2, and nothing is written.
"""

from pathlib import Path

import pytest

from evolve.core.task import Task
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator
from tests.cli.recording import record
from tests.report.kernels import as_kernel, elementwise, example

RELU = elementwise("return x.relu()")
WRONG = as_kernel(elementwise("return x.abs()"))


WEAK = {"name": "zeros", "passed_by": "default", "detail": "zeros pass its check"}


def recorded_run(
    folder: Path,
    winner: str,
    device_class: str = "cpu: of a test",
    audit=(),
    name: str | None = None,
) -> None:
    """A finished run `demo` in the folder's database, won by that source."""
    task = example(RELU, "relu")
    task = Task(name=name or task.name, source=task.source, seeds=(winner,))
    (folder / "runs").mkdir()
    with Store.open(folder / "runs" / "evolve.db", create=True) as store:
        record(store, task, SyntheticEvaluator(device_class=device_class), audit=audit)


@pytest.mark.slow
def test_a_folder_becomes_an_operator_whose_tests_have_passed(evolve, tmp_path: Path):
    recorded_run(tmp_path, as_kernel(RELU))
    done = evolve("best", "demo", "-o", "out/relu_kernel")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "out/relu_kernel"
    assert "0 failed" in done.stdout
    assert "NOT run" not in done.stdout
    readme = (tmp_path / "out" / "relu_kernel" / "README.md").read_text()
    for fact in ("95 % interval", "PyTorch eager", "run          demo", "verified"):
        assert fact in readme
    again = evolve("best", "demo", "--as", "torch-op", "-o", "out/relu_kernel")
    assert again.returncode == 2
    assert "not empty" in again.stderr


@pytest.mark.slow
def test_a_failed_check_ends_with_1_is_named_and_keeps_the_folder(evolve, tmp_path: Path):
    recorded_run(tmp_path, WRONG, audit=[WEAK])
    done = evolve("best", "demo", "--as", "torch-op")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED  the kernel is right and leaves its inputs alone (0 of 1)" in done.stdout
    assert "allowed" in done.stdout  # how far off it is
    assert "not fit" in done.stdout
    assert (tmp_path / "relu_kernel" / "op.py").is_file()
    assert "The task is WEAK: zeros pass" in (tmp_path / "relu_kernel" / "README.md").read_text()


def test_a_module_is_written_where_a_file_is_named_or_nothing(evolve, tmp_path: Path):
    recorded_run(tmp_path, as_kernel(RELU))
    assert evolve("best", "-o", "kernel.py").returncode == 0
    text = (tmp_path / "kernel.py").read_text()
    assert "class ModelNew" in text
    assert evolve("best", "--as", "module").stdout == text
    assert evolve("best").stdout == text


def test_a_winner_for_a_suite_is_written_in_its_form(evolve, tmp_path: Path):
    recorded_run(tmp_path, as_kernel(RELU), name="gpu_mode:pmpp_v2/relu_py")
    done = evolve("best", "demo", "--as", "suite", "-o", "answers")
    assert (done.returncode, done.stdout) == (0, "answers/submission.py\n")
    text = (tmp_path / "answers" / "submission.py").read_text()
    assert text.startswith("# Kernel for task gpu_mode:pmpp_v2/relu_py")
    assert "def custom_kernel(data)" in text


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("words", "device_class", "said"),
    [
        (("--as", "torch-op", "-o", "kernel.py"), "cpu", "is a file"),
        (("--as", "suite"), "cpu", "is of no suite"),
        (("-o", "my-kernel"), "cpu", "Python cannot import"),
        (("--as", "operator"), "cpu", "torch-op"),
        (("--as", "torch-op"), "a mystery", "which architecture"),
    ],
)
def test_what_cannot_be_done_is_said(evolve, tmp_path: Path, words, device_class, said):
    recorded_run(tmp_path, as_kernel(RELU), device_class)
    done = evolve("best", "demo", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
