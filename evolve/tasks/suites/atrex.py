"""Atrex-Bench (Alibaba, 2026) from a user's checkout: operators with shapes of real services."""

from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.suites import TaskText
from evolve.tasks.suites.checkout import product, read_json
from evolve.tasks.suites.listed import (
    HELPERS,
    ListedSuite,
    read_module,
    require_defined,
    timed_cases,
)


class Atrex(ListedSuite):
    """Labels are the operators' names. A shape of an operator is a case."""

    name = "atrex"
    variable = "ATREX_BENCH_PATH"
    _repository = "https://github.com/alibaba/atrex-bench"
    _places = ("data/operator_importance.json", "data/rms_norm")

    def _found(self, root: Path) -> dict[str, Path]:
        found = sorted((root / "data").glob("*/reference.py"))
        return {path.parent.name: path.parent for path in found}

    def _task(self, label: str, path: Path) -> TaskText:
        text, tree = read_module(path / "reference.py")
        require_defined(path / "reference.py", tree, "Model")
        inputs, made = read_module(path / "input.py")
        require_defined(path / "input.py", made, "_make_inputs")
        shapes = _shapes(path / "shapes.json")
        source = [
            "# SPDX-License-Identifier: Apache-2.0",
            f"# Operator {label} of Atrex-Bench.",
            text.strip("\n"),
            "",
            inputs.strip("\n"),
            "",
            f"{HELPERS} calls as _calls, hosts as _hosts, rules as _rules",
            "",
            f"SHAPE = {next(iter(shapes))!r}",
            f"_SHAPES = {shapes!r}",
            "",
            "",
            "@_hosts.hosted",
            "def get_inputs():",
            '    made = _make_inputs(**(_SHAPES[SHAPE].get("input_kwargs") or {}))',
            "    return _calls.method_arguments(Model.forward, made)",
            "",
            "",
            "def get_init_inputs():",
            '    given = _SHAPES[SHAPE].get("init_kwargs") or {}',
            "    return _calls.method_arguments(Model.__init__, given)",
            "",
            "",
            "suite_check = _rules.by_type((0.05, 1e-2))",
            "",
        ]
        workloads = {name: ({"SHAPE": name}, _size(shape)) for name, shape in shapes.items()}
        return TaskText("\n".join(source), cases=tuple(timed_cases(workloads)))


def _shapes(path: Path) -> dict[str, dict[str, Any]]:
    shapes = read_json(path)
    if not isinstance(shapes, dict) or not shapes:
        raise UsageError(f"{path} has no shapes by name.")
    for name, shape in shapes.items():
        if not isinstance(shape, dict):
            raise UsageError(f"{path}: shape {name} is no object.")
        parts = [shape.get(part) for part in ("input_kwargs", "init_kwargs")]
        if not all(isinstance(part, dict | None) for part in parts):
            raise UsageError(f"{path}: shape {name} has no arguments by name.")
    return shapes


def _size(shape: dict[str, Any]) -> float:
    values = (shape.get("input_kwargs") or {}).values()
    return product(one for v in values for one in (v if isinstance(v, list) else [v]))
