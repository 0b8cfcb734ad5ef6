"""The problems of GPU MODE's competitions (reference-kernels) from a user's checkout.

A candidate's `forward` takes the one argument of `custom_kernel`. A problem's own checker is the
suite's verdict, and the judge's as well if it never asks the reference: it checks properties then.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.suites import TaskText
from evolve.core.task import Case
from evolve.tasks.beside import encoded
from evolve.tasks.functions import NO_STATE
from evolve.tasks.suites.checkout import read_data, read_yaml
from evolve.tasks.suites.listed import (
    HELPERS,
    MOST_TIMED,
    ListedSuite,
    read_module,
    require_defined,
)

_GENERATE, _REFERENCE, _CHECK = "generate_input", "ref_kernel", "check_implementation"
_NOT_NEEDED = ("reference.py", "eval.py")
_TYPES = "task_types"  # its module `task`, a name that the task file has


class GpuMode(ListedSuite):
    """Labels are `SET/PROBLEM`; the set is the level. One licence is that of all problems."""

    name = "gpu_mode"
    variable = "GPU_MODE_PATH"
    levels: tuple[str, ...] = ("pmpp_v2",)
    _repository = "https://github.com/gpu-mode/reference-kernels"
    _places = ("problems",)

    def _found(self, root: Path) -> dict[str, Path]:
        folder = root / "problems"
        found = sorted(path.parent for path in folder.rglob("task.yml"))
        return {path.relative_to(folder).as_posix(): path for path in found}

    def _task(self, label: str, path: Path) -> TaskText:
        config = _config(path / "task.yml")
        text, tree = read_module(path / "reference.py")
        require_defined(path / "reference.py", tree, _GENERATE, _REFERENCE, _CHECK)
        arguments = _arguments(config, path / "task.yml")
        source = [
            "# SPDX-License-Identifier: LicenseRef-June-9-Researcher-Reciprocity-1.0",
            f"# Problem {label} of GPU MODE.",
            _renamed(text).strip("\n"),
            "",
            f"{HELPERS} hosts as _hosts, rules as _rules",
            "",
            f"CASE = {next(iter(arguments))!r}",
            f"_CASES = {arguments!r}",
            *("", ""),
            "class Model(__import__('torch').nn.Module):",
            '    """The reference as a module without state."""',
            "",
            "    def forward(self, data):",
            f"        return {_REFERENCE}(data)",
            *("", ""),
            "@_hosts.hosted",
            "def get_inputs():",
            f"    return [{_GENERATE}(**_CASES[CASE])]",
            NO_STATE,
            "",
            f"suite_check = _rules.own({_CHECK})",
            *([] if _asks_reference(tree) else ["check = suite_check"]),
            "",
        ]
        return TaskText(
            "\n".join(source),
            category=label.partition("/")[0],
            cases=tuple(_cases(arguments)),
            files=encoded(dict(_beside(config, path))),
        )


def _config(path: Path) -> dict[str, Any]:
    config = read_yaml(path)
    if not isinstance(config, dict) or not isinstance(config.get("files"), list):
        raise UsageError(f"{path} has no list of files: it is no problem of this suite.")
    if config.get("multi_gpu"):
        raise UsageError(f"{path}: the problem is one for several GPUs, and a task has one.")
    if config.get("lang", "py") != "py":
        raise UsageError(f"{path}: its language is {config['lang']!r}; only py can be read.")
    return config


def _arguments(config: Mapping[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """By the name of a case, the arguments of its inputs."""
    found: dict[str, dict[str, Any]] = {}
    for part in ("tests", "benchmarks"):
        entries = config.get(part) or []
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise UsageError(f"{path}: {part} is no list of arguments by name.")
        found |= {f"{part}{number}": dict(one) for number, one in enumerate(entries)}
    if not found:
        raise UsageError(f"{path} has no tests and no benchmarks.")
    return found


def _cases(arguments: Mapping[str, Any]) -> Iterator[Case]:
    """Tests are checked; benchmarks, the last few of them, are timed."""
    benchmarks = [name for name in arguments if name.startswith("benchmarks")]
    timed = set(benchmarks[-MOST_TIMED:] or arguments)
    for name in arguments:
        yield Case(name=name, constants={"CASE": name}, timed=name in timed)


def _beside(config: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of the modules that the reference may import."""
    for entry in _python_files(config["files"], path):
        name, source = Path(entry["name"]).name, path / entry["source"]
        root = next(p for p in path.parents if p.name == "problems")
        if not source.resolve().is_relative_to(root.resolve()):
            raise UsageError(f"{path / 'task.yml'} names {source}, which is not in the checkout.")
        yield f"{_TYPES}.py" if name == "task.py" else name, _renamed(read_data(source))


def _renamed(text: str) -> str:
    return re.sub(r"^(\s*)(from|import) task\b", rf"\1\2 {_TYPES}", text, flags=re.MULTILINE)


def _python_files(files: Sequence[Any], path: Path) -> Iterator[Mapping[str, str]]:
    for entry in files:
        if not isinstance(entry, dict) or not {"name", "source"} <= {*entry}:
            raise UsageError(f"{path / 'task.yml'}: {entry!r} is no file with a name and a source.")
        name, source = str(entry["name"]), str(entry["source"])
        if name.endswith(".py") and name not in _NOT_NEEDED and source != "@SUBMISSION@":
            yield {"name": name, "source": source}


def _asks_reference(tree: ast.Module) -> bool:
    """Whether the checker compares with the reference, in which case the judge does it better."""
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) if name == _CHECK:
                used = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
                return any(node.id == _REFERENCE for node in used)
    return True  # it is assigned: one of the suite's ready-made comparisons
