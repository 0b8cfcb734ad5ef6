"""robust-kbench (Sakana AI, 2025) from a user's checkout: modules with settings of inputs.

The setting that the suite measures is timed, the several ones of its robustness check are checked.
A backward task is the gradient of the module: see `evolve.testing.suite_tasks.gradients`.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.suites import TaskText
from evolve.core.task import Case
from evolve.tasks.suites.checkout import read_json
from evolve.tasks.suites.listed import HELPERS, ListedSuite, read_module, require_defined

_KINDS = ("input", "init", "shared")
_FORWARD, _BACKWARD = "forward", "backward"
_DEFINED = (ast.ClassDef, ast.FunctionDef)


class RobustKBench(ListedSuite):
    """Labels are `NAME`, `NAME/backward`, and `level_1/task_1` of the ports of KernelBench."""

    name = "robust_kbench"
    variable = "ROBUST_KBENCH_PATH"
    _repository = "https://github.com/SakanaAI/robust-kbench"
    _places = ("tasks",)

    def _found(self, root: Path) -> dict[str, Path]:
        folder = root / "tasks"
        own = [(path.parent.name, path) for path in folder.glob("*/func_forward.py")]
        own += [(f"{p.parent.name}/{_BACKWARD}", p) for p in folder.glob("*/func_backward.py")]
        ports = folder.glob("kernelbench/level_*/*/func_forward.py")
        named = [(f"{path.parents[1].name}/{path.parent.name}", path) for path in ports]
        return dict([*sorted(own), *sorted(named, key=lambda one: _order(one[0]))])

    def _level(self, label: str, path: Path) -> str:
        first, _, last = label.partition("/")
        return last if last == _BACKWARD else first if last else _FORWARD

    def _task(self, label: str, path: Path) -> TaskText:
        text, tree = read_module(path)
        require_defined(path, tree, "Model", "get_inputs")
        is_backward = path.name == "func_backward.py"
        direction = _BACKWARD if is_backward else _FORWARD
        module = "Forward" if is_backward else "Model"
        settings = dict(_settings(path.with_name(f"config_{direction}.json")))
        source = [
            "# SPDX-License-Identifier: Apache-2.0",
            f"# Task {label} of robust-kbench.",
            # Its own class keeps another name: methods of it may say `super(Model, self)`.
            re.sub(r"\bModel\b", "Forward", text.strip("\n")) if is_backward else text.strip("\n"),
            "",
            f"{HELPERS} calls as _calls, gradients as _gradients",
            f"{HELPERS} hosts as _hosts, rules as _rules",
            "",
            f"SETTING = {next(iter(settings))!r}",
            f"_SETTINGS = {settings!r}",
            "",
            "_inputs = get_inputs",
            *("", ""),
            *(_gradient(tree) if is_backward else []),
            "@_hosts.hosted",
            "def get_inputs():",
            '    made = _inputs(**_SETTINGS[SETTING]["input"])',
            *(_WITH_GRADIENT if is_backward else ["    return made"]),
            *("", ""),
            "def get_init_inputs():",
            "    given = _SETTINGS[SETTING]['init']",
            f"    return _calls.method_arguments({module}.__init__, given)",
            *("", ""),
            "suite_check = _rules.by_type((1e-5, 1e-5))",
            "",
        ]
        cases = [
            Case(name=name, constants={"SETTING": name}, timed=name.startswith("single"))
            for name in settings
        ]
        return TaskText("\n".join(source), category=self._level(label, path), cases=tuple(cases))


def _gradient(tree: ast.Module) -> list[str]:
    """The class of a backward task, with the names of its inputs if they can be read."""
    given = ", ".join(("grad_output", *(_inputs_of(tree) or ["*inputs"])))
    return [
        "class Model(_gradients.Backward, Forward):",
        '    """From the gradient of the output, and the inputs, the gradients of all."""',
        "",
        f"    def forward(self, {given}):",
        f"        return super().forward({given})",
        *("", ""),
    ]


def _inputs_of(tree: ast.Module) -> list[str]:
    """The parameters of `Model.forward` that `get_inputs` has values for; none if not known."""
    known = {node.name: node for node in ast.walk(tree) if isinstance(node, _DEFINED)}
    makes, model = known["get_inputs"], known["Model"]
    forward = next((n for n in model.body if getattr(n, "name", "") == "forward"), None)
    returned = [node.value for node in ast.walk(makes) if isinstance(node, ast.Return)]
    if not isinstance(forward, ast.FunctionDef) or len(returned) != 1:
        return []
    made = returned[0]
    names = [argument.arg for argument in forward.args.args[1:]]
    if not isinstance(made, ast.List | ast.Tuple) or len(made.elts) > len(names):
        return []
    return names[: len(made.elts)]


_WITH_GRADIENT = ["    return _gradients.with_gradient(Forward, get_init_inputs(), made)"]


def _order(label: str) -> tuple[str, int]:
    level, _, task = label.partition("/")
    number = task.rpartition("_")[2]
    return level, int(number) if number.isdecimal() else 0


def _settings(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """By name, arguments of `get_inputs` and of the constructor: each with each, shared to both.

    Raises:
        UsageError: the file is not of this form.
    """
    try:
        config = read_json(path)
        found = [
            (f"{group}{number}", {"input": {**some, **both}, "init": {**init, **both}})
            for group in ("single", "multi")
            for number, (some, init, both) in enumerate(
                itertools.product(*(config[f"{group}_{kind}_configs"] for kind in _KINDS))
            )
        ]
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path} has no settings of this suite's form ({error!r}).") from error
    if not any(name.startswith("single") for name, _ in found):
        raise UsageError(f"{path} has no single setting, which is the one to be timed.")
    yield from found
