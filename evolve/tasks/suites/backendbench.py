"""BackendBench (Meta, 2025): operators of PyTorch with the arguments that models call them with.

Its repository has no data: `path` is the folder of the data set's `*.parquet`, or of traces,
`*.txt`.
"""

import math
import re
from collections.abc import Iterator, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError, needing
from evolve.core.suites import TaskText
from evolve.tasks.functions import NO_STATE
from evolve.tasks.suites.checkout import read_data, require_fetched
from evolve.tasks.suites.listed import HELPERS, ListedSuite, timed_cases

MOST_CALLS = 24  # of an operator, spread over those that differ
_INDICES = ("embedding", "gather", "index", "nll_loss", "put", "scatter", "take")
_OPERATOR = re.compile(r"Operator: (.*)")
_CALL = re.compile(r"cnt: ([1-9]\d*), (.*)")  # none of count 0: these are synthetic
_COLUMNS = ("op_name", "args", "is_synthetic")
_RENAMED = {"aten.sum.SymInt": "aten.sum.dim_IntList"}


class BackendBench(ListedSuite):
    """Labels are the operators' names without `aten.`, such as `add.Tensor`."""

    name = "backendbench"
    variable = "BACKENDBENCH_PATH"
    _remedy = (
        "Download backend_bench_problems.parquet of "
        "https://huggingface.co/datasets/GPUMODE/backendbench_tests"
    )
    _places = ("*.parquet", "*.txt")

    def _found(self, root: Path) -> dict[str, Path]:
        found: dict[str, Path] = {}
        files = sorted((*root.glob("*.parquet"), *root.glob("*.txt")))
        for path in files:
            for operator, _ in _calls(path):
                found.setdefault(operator.removeprefix("aten."), path)
        if not found:
            raise UsageError(
                f"suite {self.name}: no *.parquet and no trace *.txt of {root} has operators. "
                f"{self._remedy} and set {self.variable} to its folder."
            )
        return dict(sorted(found.items()))

    def _task(self, label: str, path: Path) -> TaskText:
        if any(word in label for word in _INDICES):
            raise UsageError(
                f"task {self.name}:{label}: its integers are indices, and the data set does not "
                "say of what range."
            )
        if not all(part.isidentifier() and not iskeyword(part) for part in label.split(".")):
            raise UsageError(f"{path}: {label!r} is no name of an operator.")
        texts = _spread(
            sorted({t for op, t in _calls(path) if op == f"aten.{label}"}, key=_elements)
        )
        calls = {f"call{number}": text for number, text in enumerate(texts)}
        source = [
            "# SPDX-License-Identifier: BSD-3-Clause",
            f"# Operator aten.{label} with calls of BackendBench's data set.",
            "import torch",
            "",
            f"{HELPERS} rules as _rules, traces as _traces",
            "",
            f"CALL = {next(iter(calls))!r}",
            f"_CALLS = {calls!r}",
            *("", ""),
            "class Model(torch.nn.Module):",
            '    """The operator as a module without state."""',
            "",
            "    def forward(self, args, kwargs):",
            f"        return torch.ops.aten.{label}(*args, **kwargs)",
            *("", ""),
            "def get_inputs():",
            "    return list(_traces.arguments_of(_CALLS[CALL]))",
            NO_STATE,
            "",
            "suite_check = _rules.by_type((1e-2, 1e-2), integers=(1e-2, 1e-2), equal_nan=True)",
            "",
        ]
        workloads = {name: ({"CALL": name}, _elements(text)) for name, text in calls.items()}
        return TaskText("\n".join(source), cases=tuple(timed_cases(workloads)))

    def _level(self, label: str, path: Path) -> str:
        return ""


def _calls(path: Path) -> Iterator[tuple[str, str]]:
    """Operators with the text of their arguments, in a file's order."""
    lines = _rows(path) if path.suffix == ".parquet" else _lines(read_data(path))
    return ((_RENAMED.get(operator, operator), text) for operator, text in lines)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    operator = ""
    for line in text.splitlines():
        if found := _OPERATOR.match(line):
            operator = found[1].strip()
        elif operator and (call := _CALL.match(line)):
            yield operator, call[2].strip()


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    require_fetched(path)
    with needing(str(path), "data", ("pyarrow",)):
        import pyarrow.parquet as parquet
    if not {*_COLUMNS} <= {*parquet.read_schema(path).names}:
        return iter(())  # the data set has files of other forms too
    columns: dict[str, Sequence[Any]] = parquet.read_table(path, columns=[*_COLUMNS]).to_pydict()
    rows = zip(*(columns[name] for name in _COLUMNS), strict=True)
    return ((str(name), str(text)) for name, text, is_synthetic in rows if not is_synthetic)


def _spread(texts: Sequence[str]) -> Sequence[str]:
    if len(texts) <= MOST_CALLS:
        return texts
    return [texts[place * (len(texts) - 1) // (MOST_CALLS - 1)] for place in range(MOST_CALLS)]


def _elements(text: str) -> float:
    """Of all tensors of a call, as far as the text says."""
    shapes = re.findall(r"T\(\[([\d, ]*)\]", text)
    return float(sum(math.prod(map(int, re.findall(r"\d{1,18}", s))) for s in shapes))
