"""TritonBench (Li et al., 2025), and suites of its form: a function, a divider, and its tests.

A task is the function. Its inputs are those of the calls that the tests make, recorded when the
judge runs the tests, and for timing those of the suite's benchmark of the function. The programs
of the suite that judge and time (EVAL) are not used.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse
from evolve.core.suites import Problem, TaskText
from evolve.core.task import Case
from evolve.tasks.beside import encoded
from evolve.tasks.functions import NO_STATE, model_text, seed_of
from evolve.tasks.suites.checkout import CheckoutSuite, read_data, read_json
from evolve.tasks.suites.listed import defined

_DIVIDER = re.compile(r"^#{146}[ \t]*$", re.MULTILINE)
_HELPER = "evolve.testing.suite_tasks"
_TESTS, _BENCHMARK = "tests", "benchmark"
_MOST_BYTES = {"tiny": 1 << 16, "cpu": 1 << 22, "gpu": 1 << 30}  # of a tensor that is timed
_SIZES = {size: {"MOST_BYTES": most} for size, most in _MOST_BYTES.items()}


@dataclass(frozen=True, slots=True)
class Parts:
    """A file of such a suite, with what else belongs to its task.

    `entry` is the name of the function; `benchmark` the text of its benchmark, if it has one;
    `helpers` modules that the tests import; `rule` an expression over `rules` of the suite tasks;
    `licence` of the text, as SPDX has it.
    """

    path: str
    reference: str
    tests: str
    entry: str
    benchmark: str
    helpers: dict[str, str]
    rule: str
    licence: str


def task_of(parts: Parts) -> tuple[str, tuple[Case, ...], dict[str, str]]:
    """Source, cases and files of the task."""
    texts = {f"{_TESTS}.py": parts.tests} | parts.helpers
    if parts.benchmark:
        texts[f"{_BENCHMARK}.py"] = parts.benchmark
    cases = [Case(name=_TESTS, constants={"PART": _TESTS}, timed=not parts.benchmark)]
    if parts.benchmark:
        cases.append(Case(name=_BENCHMARK, constants={"PART": _BENCHMARK}))
    return _source(parts), tuple(cases), encoded(texts)


def _source(parts: Parts) -> str:
    imports = [f"import {name.removesuffix('.py')}" for name in parts.helpers]
    return "\n".join(
        [
            f"# SPDX-License-Identifier: {parts.licence}",
            f"# The function of {parts.path}; inputs are those of its tests and its benchmark.",
            parts.reference.strip("\n"),
            "\n",
            f"from {_HELPER} import calls as _calls, rules as _rules",
            *imports,
            "",
            f'PART = "{_TESTS}"',
            f"SIZES = {_SIZES}",
            f"MOST_BYTES = {_MOST_BYTES['cpu']}",
            "\n",
            model_text(parts.reference, parts.entry),
            "",
            "def get_input_groups():",
            f'    return _calls.input_groups(globals(), "{parts.entry}", PART, MOST_BYTES)',
            "",
            NO_STATE,
            "",
            f"suite_check = _rules.{parts.rule}",
            "",
        ]
    )


def split(path: Path) -> tuple[str, str]:
    """The function's text and the tests'.

    Raises:
        UsageError: the file cannot be read, or is not of this form.
    """
    parts = _DIVIDER.split(read_data(path))
    if len(parts) != 2:
        raise UsageError(
            f"{path} has {len(parts) - 1} dividers (a line of 146 #) in place of one: not the "
            "form of this suite. Check out a commit that has it."
        )
    reference, tests = parts
    for text in parts:
        try:
            parse(text)
        except SyntaxError as error:
            raise UsageError(f"{path} is not valid Python ({error.msg}).") from error
    return reference, tests


def entry_of(reference: str, tests: str, path: Path) -> str:
    """The function that the tests call: that of the file's name, or the one called most.

    Raises:
        UsageError: they call none that the reference defines, or it has a `Model` of its own.
    """
    tree = parse(reference)
    functions = defined(tree) - _no_functions(tree)
    if "Model" in defined(tree):
        raise UsageError(f"{path} defines a Model of its own, whose name a task file needs.")
    called = [
        node.func.id
        for node in ast.walk(parse(tests))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    for name in (path.stem, "kernel_function"):
        if name in functions and name in called:
            return name
    found = [name for name in called if name in functions]
    if not found:
        raise UsageError(
            f"{path}: its tests call no function of it by name (a class or a method is no function "
            "task)."
        )
    return max(found, key=found.count)


def _no_functions(tree: ast.Module) -> set[str]:
    """Classes and kernels of a module."""
    return {
        one.name
        for one in tree.body
        if isinstance(one, ast.ClassDef)
        or (
            isinstance(one, ast.FunctionDef)
            and any("jit" in ast.unparse(mark) for mark in one.decorator_list)
        )
    }


def imported(tests: str, folder: Path) -> dict[str, str]:
    """Modules of a folder that the tests import, by file name."""
    found: dict[str, str] = {}
    for node in ast.walk(parse(tests)):
        module = node.module if isinstance(node, ast.ImportFrom) else None
        path = folder / f"{module}.py"
        if module and path.is_file():
            found[path.name] = read_data(path)
    return found


class _TritonBench(CheckoutSuite):
    """One of the two channels."""

    variable = "TRITONBENCH_PATH"
    _channel: str
    _licence: str
    _repository = "https://github.com/thunlp/TritonBench"

    def problems(self, checkout: Path | None) -> Sequence[Problem]:
        levels = self._levels(checkout)
        return [
            Problem(f"{self.name}:{path.stem}", path.stem, path.stem, levels.get(path.stem, ""))
            for path in sorted(self._folder(checkout).glob("*.py"))
        ]

    def task(self, label: str, checkout: Path | None) -> TaskText:
        path = self._folder(checkout) / f"{label}.py"
        if not path.is_file():
            raise UsageError(f"task {self.name}:{label}: there is no {path}.")
        reference, tests = split(path)
        entry = entry_of(reference, tests, path)
        parts = Parts(
            path=f"{path.parent.name}/{path.name}",
            reference=reference,
            tests=tests,
            entry=entry,
            benchmark=self._benchmark(label, checkout),
            helpers={},
            rule="completes()",
            licence=self._licence,
        )
        source, cases, files = task_of(parts)
        return TaskText(source, cases=cases, seeds=self._seeds(reference, entry), files=files)

    def _seeds(self, reference: str, entry: str) -> tuple[str, ...]:
        return ()

    def _folder(self, checkout: Path | None) -> Path:
        return self._root(checkout) / "data" / f"TritonBench_{self._channel}_v1"

    def _benchmark(self, label: str, checkout: Path | None) -> str:
        folder = f"performance_metrics/perf_{self._channel}/golden_metrics"
        path = self._root(checkout) / folder / f"{label}_perf.py"
        return read_data(path) if path.is_file() else ""

    def _levels(self, checkout: Path | None) -> dict[str, str]:
        """The difficulty of each problem that the catalogue has; it is JSON, whatever its name."""
        folder = self._root(checkout) / "data"
        for path in folder.glob(f"TritonBench_{self._channel}_v1.json*"):
            return difficulties(path)
        return {}


def difficulties(path: Path) -> dict[str, str]:
    """By the stem of a file, those of a catalogue.

    Raises:
        UsageError: it is no JSON list of problems.
    """
    try:
        entries = read_json(path)
        return {Path(one["file"]).stem: str(one.get("difficulty", "")) for one in entries}
    except (TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} is no JSON list of problems ({error!r}).") from error


class TritonBenchT(_TritonBench):
    """Functions of PyTorch, with a reference in PyTorch."""

    name = "tritonbench_t"
    _channel = "T"
    _places = ("data/TritonBench_T_v1",)
    _licence = "Apache-2.0"


class TritonBenchG(_TritonBench):
    """Kernels of many repositories, whose licences are their own; the kernel is the reference.

    It is the program to start from as well.
    """

    name = "tritonbench_g"
    _channel = "G"
    _places = ("data/TritonBench_G_v1",)
    _licence = "LicenseRef-TritonBench-G"

    def _seeds(self, reference: str, entry: str) -> tuple[str, ...]:
        return (seed_of(reference, entry),)
