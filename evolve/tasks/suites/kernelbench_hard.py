"""KernelBench-Hard and its sisters (kernelbench.com) from a user's checkout.

A problem is a module of KernelBench's form whose constants its harness sets for each of its shapes.
Problems whose harness does more than that (decode loops, several GPUs) are no such tasks.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.suites import TaskText
from evolve.tasks.suites.checkout import product, read_yaml
from evolve.tasks.suites.listed import (
    HELPERS,
    ListedSuite,
    defined,
    read_module,
    require_defined,
    timed_cases,
)

_HALF, _EIGHT = (1e-2, 1e-2), (1e-1, 1e-1)
_TYPES = {
    "float16": _HALF,
    "bfloat16": _HALF,
    "float8_e4m3fn": _EIGHT,
    "float8_e5m2": _EIGHT,
}


class KernelBenchHard(ListedSuite):
    """Labels are `SUITE-HARDWARE/NAME`, of which the first part is the level."""

    name = "kernelbench_hard"
    variable = "KERNELBENCH_HARD_PATH"
    levels: tuple[str, ...] = ("hard-h100",)
    _repository = "https://github.com/Infatoshi/kernelbench.com"
    _places = ("benchmarks/hard",)

    def _found(self, root: Path) -> dict[str, Path]:
        return {
            _label(path): path.parent
            for path in sorted((root / "benchmarks").glob("*/problems*/*/reference.py"))
        }

    def _task(self, label: str, path: Path) -> TaskText:
        if label.startswith("multi"):
            raise UsageError(f"{path}: the problem is one for several GPUs, and a task has one.")
        text, tree = read_module(path / "reference.py")
        require_defined(path / "reference.py", tree, "Model", "get_inputs", "get_init_inputs")
        shapes = _shapes(path / "shapes.py")
        names = defined(tree)
        workloads = {
            f"shape{number}": (dict(_constants(shape, names)), product(shape.values()))
            for number, shape in enumerate(shapes)
        }
        source = [
            "# SPDX-License-Identifier: MIT",
            f"# Problem {label} of kernelbench.com.",
            text.strip("\n"),
            "",
            f"{HELPERS} hosts as _hosts, rules as _rules",
            "",
            "get_inputs = _hosts.hosted(get_inputs)",
            f"suite_check = _rules.by_type((1e-4, 1e-4), {_tolerances(path)}, finite=True)",
            "",
        ]
        return TaskText("\n".join(source), cases=tuple(timed_cases(workloads)))


def _label(path: Path) -> str:
    """Of `benchmarks/hard/problems-h100/05_topk/reference.py`: `hard-h100/05_topk`."""
    problem, problems, suite = (folder.name for folder in list(path.parents)[:3])
    return f"{suite}{problems.removeprefix('problems')}/{problem}"


def _shapes(path: Path) -> list[dict[str, Any]]:
    """The list SHAPES of a file, whose values are constants or names of such.

    Raises:
        UsageError: it has none of this form.
    """
    _, tree = read_module(path)
    known: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                known[statement.targets[0].id] = _value(statement.value, known)
            except (ValueError, KeyError):
                continue
    shapes = known.get("SHAPES")
    if not isinstance(shapes, list) or not shapes or not all(isinstance(s, dict) for s in shapes):
        raise UsageError(f"{path} has no list SHAPES of dicts of constants.")
    return shapes


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(name):
            return known[name]
        case ast.List(elements):
            return [_value(element, known) for element in elements]
        case ast.Dict(keys, values):
            pairs = zip(keys, values, strict=True)
            return {_value(k, known): _value(v, known) for k, v in pairs if k is not None}
    return ast.literal_eval(node)


def _constants(shape: Mapping[str, Any], names: set[str]) -> Iterator[tuple[str, Any]]:
    """The values of a shape by the names that the module has, which may be in capitals."""
    for key, value in shape.items():
        for name in (key, key.upper()):
            if name in names:
                yield name, value
                break
        else:
            raise UsageError(f"shapes.py names {key}, which is no constant of reference.py.")


def _tolerances(path: Path) -> dict[str, tuple[float, float]]:
    """By type, relative and absolute: the usual ones, and the problem's own in their place."""
    file = path / "problem.yaml"
    config = read_yaml(file) or {}
    try:
        own = config.get("tolerance") or {}
        return _TYPES | {str(name): (float(most), float(most)) for name, most in own.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{file} has no tolerances by type ({error}).") from error
