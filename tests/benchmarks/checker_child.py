"""Suites' own checkers on the CPU: each takes a candidate's text, and says whether it passes.

The text of this module is part of a program that runs in the judge's sandbox
(`tests.benchmarks.bench_checkers`), where the candidate runs beside the suite's checker as it does
in the suite. Files of the checkout are executed as they are; `cuda` is the CPU, and what waits for
a GPU does nothing. A candidate defines `kernel(*tensors)`.
"""

import contextlib
import importlib.util
import io
import runpy
import sys
import types
from pathlib import Path
from unittest import mock

import torch

from evolve.testing.suite_tasks.hosts import Host, hosted  # its text goes before this one

SEPARATOR = "#" * 146  # between an answer and its tests, in KernelBench-X and TritonBench


def module_at(path, name):
    """A module of the checkout, which may import what lies beside it."""
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def packages(**places):
    """Empty packages in place of those whose `__init__` needs what is not installed."""
    for name, place in places.items():
        package = types.ModuleType(name.replace("__", "."))
        package.__path__ = [str(place)]
        sys.modules[package.__name__] = package


def kernel_of(candidate):
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    exec(compile(candidate, "answer.py", "exec"), module.__dict__)
    return module.kernel


def backendbench(root, candidate):
    """`eval_correctness` of operator relu on four random tensors, as its suites make them."""
    packages(BackendBench=root / "BackendBench" / "BackendBench")
    checker = module_at(root / "BackendBench/BackendBench/eval.py", "BackendBench.eval")
    shapes = ((128, 512), (16, 32), (7, 33), (64, 64))
    tests = [types.SimpleNamespace(args=(torch.randn(s),), kwargs={}) for s in shapes]
    share, _ = checker.eval_correctness(torch.ops.aten.relu.default, kernel_of(candidate), tests)
    return share == 1.0


def gpu_mode(root, candidate):
    """`check_implementation` on the first two tests of the problem, as `eval.py` calls it."""
    folder = root / "reference-kernels/problems/pmpp_v2"
    sys.path.insert(0, str(folder))
    problem = module_at(folder / "vectoradd_py/reference.py", "reference")
    kernel = kernel_of(candidate)
    for size, seed in ((127, 4242), (128, 5236)):
        data = hosted(problem.generate_input)(size=size, seed=seed)
        output = kernel(*(tensor.clone() for tensor in data[:2]))
        good, _ = problem.check_implementation(data, output)
        if not good:
            return False
    return True


def robust_kbench(root, candidate):
    """`check_forward_correctness` with its defaults on the setting that the suite measures."""
    packages(robust_kbench=root / "robust-kbench/robust_kbench")
    packages(robust_kbench__sandbox=root / "robust-kbench/robust_kbench/sandbox")
    sandbox = root / "robust-kbench/robust_kbench/sandbox"
    checker = module_at(
        sandbox / "correct_forward_fn.py", "robust_kbench.sandbox.correct_forward_fn"
    )
    task = module_at(
        root / "robust-kbench/tasks/kernelbench/level_1/task_19/func_forward.py", "task"
    )
    with Host(), without_gpu():
        found = checker.check_forward_correctness(
            task.Model, task.forward_fn, kernel_of(candidate), task.get_inputs,
            {"batch_size": 16, "dim": 1024}, {},
        )  # fmt: skip
    return bool(found.correct)


def kernelbench_x(root, candidate):
    """`compare_python_files` of the answer with the tests, and the suite's own file."""
    suite = root / "KernelBenchX"
    gold = suite / "data/kernelbenchx/Activation/relu.py"
    checker = module_at(suite / "EVAL/1_exe_acc.py", "exe_acc")
    answer = answered(candidate, gold, Path.cwd() / "relu.py")
    sys.path.insert(0, str(suite / "utils"))
    with Host():
        return checker.compare_python_files(str(answer), str(gold))[0]


def tritonbench(root, candidate):
    """`compare_python_files`: equal printed text; the files run here, not by an interpreter."""
    suite = root / "TritonBench"
    gold = suite / "data/TritonBench_T_v1/relu.py"
    checker = module_at(suite / "EVAL/eval_T/1_exe_acc.py", "exe_acc")
    answer = answered(candidate, gold, Path.cwd() / "relu.py")

    def run(command, **_):
        with contextlib.redirect_stdout(io.StringIO()) as printed, Host():
            runpy.run_path(command[1], run_name="__main__")
        return types.SimpleNamespace(stdout=printed.getvalue())

    with mock.patch.object(checker, "subprocess", types.SimpleNamespace(run=run)):
        return checker.compare_python_files(str(answer), str(gold))[0]


def answered(candidate, gold, path):
    """The answer's file: the candidate under the name of its task, and the tests of the suite."""
    tests = gold.read_text().split(SEPARATOR)[-1]
    result = "input.copy_(kernel(input)) if inplace else kernel(input)"
    entry = f"\n\ndef relu(input, inplace=False):\n    return {result}\n\n"
    path.write_text(f"{candidate}{entry}{SEPARATOR}\n{tests}")
    return path


@contextlib.contextmanager
def without_gpu():
    names = ("device", "empty_cache", "reset_peak_memory_stats", "synchronize", "manual_seed")
    with contextlib.ExitStack() as stack:
        for name in names:
            nothing = mock.MagicMock(name=name)
            stack.enter_context(mock.patch.object(torch.cuda, name, nothing))
        yield


CHECKERS = {
    "backendbench": backendbench,
    "gpu_mode": gpu_mode,
    "kernelbench_x": kernelbench_x,
    "robust_kbench": robust_kbench,
    "tritonbench_t": tritonbench,
}
