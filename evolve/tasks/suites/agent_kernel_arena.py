"""AgentKernelArena (AMD, 2026) from a user's checkout: Triton kernels to be made faster.

The kernel that a task has is its reference, and the program to start from. Inputs are those of the
calls that the task's runner makes to check a kernel. Tasks whose harness has another form cannot be
read, and its PyTorch references are not used.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.suites import TaskText
from evolve.tasks.functions import seed_of
from evolve.tasks.suites.listed import ListedSuite, defined, read_module, require_defined
from evolve.tasks.suites.tritonbench import Parts, task_of

_CHECK, _LOAD = "run_correctness", "load_module"
_USUAL = 1e-2  # of the runners that name no tolerance
_BEFORE = "_KERNELS = dict(globals())\n\n"
_AFTER = """

def {load}():
    from types import SimpleNamespace

    return SimpleNamespace(**_KERNELS)


_is_right, _why = {check}()
if not _is_right and not _KERNELS["{entry}"].calls:
    raise RuntimeError(_why)
"""


class AgentKernelArena(ListedSuite):
    """Labels are `GROUP/NAME`, of the folder `triton2triton`; the group is the level."""

    name = "agent_kernel_arena"
    variable = "AGENT_KERNEL_ARENA_PATH"
    _repository = "https://github.com/AMD-AGI/AgentKernelArena"
    _places = ("tasks/triton2triton",)

    def _found(self, root: Path) -> dict[str, Path]:
        folder = root / "tasks" / "triton2triton"
        found = sorted(path.parent for path in folder.rglob("config.yaml"))
        return {path.relative_to(folder).as_posix(): path for path in found}

    def _task(self, label: str, path: Path) -> TaskText:
        runner, tree = read_module(_runner(path))
        require_defined(_runner(path), tree, _CHECK, _LOAD)
        sources = sorted((path / "source").glob("*.py"))
        if len(sources) != 1:
            raise UsageError(f"{path / 'source'} has {len(sources)} kernels in place of one.")
        kernel, kernel_tree = read_module(sources[0])
        entry = _entry(tree, kernel_tree, _runner(path))
        parts = Parts(
            path=f"{label} of AgentKernelArena",
            reference=kernel,
            # A runner changes to its own folder, which is not there.
            tests=_BEFORE
            + re.sub(r"^os\.chdir\(.*\)$", "", runner, flags=re.MULTILINE)
            + _AFTER.format(load=_LOAD, check=_CHECK, entry=entry),
            entry=entry,
            benchmark="",
            helpers={},
            rule=f"by_type({_tolerances(tree)})",
            licence="Apache-2.0",
        )
        source, cases, files = task_of(parts)
        return TaskText(
            source,
            category=label.partition("/")[0],
            cases=cases,
            seeds=(seed_of(kernel, entry),),
            files=files,
        )


def _runner(path: Path) -> Path:
    runner = path / "scripts" / "task_runner.py"
    if not runner.is_file():
        raise UsageError(
            f"{path} has no scripts/task_runner.py: its harness calls the kernel in a form that "
            "cannot be read."
        )
    return runner


def _checks(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls in the runner's check."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == _CHECK:
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _entry(tree: ast.Module, kernel: ast.Module, path: Path) -> str:
    """The function of the kernel's module that the check calls most, of those that launch one."""
    names, launchers = defined(kernel), _launchers(kernel)
    called = Counter(
        call.func.attr
        for call in _checks(tree)
        if isinstance(call.func, ast.Attribute) and call.func.attr in names
    )
    found = [name for name, _ in called.most_common()]
    if not found:
        raise UsageError(f"{path}: its {_CHECK} calls no function of the kernel's module.")
    return next((name for name in found if name in launchers), found[0])


def _launchers(kernel: ast.Module) -> set[str]:
    """Functions that launch a kernel, or call one that does."""
    functions = [node for node in kernel.body if isinstance(node, ast.FunctionDef)]
    is_kernel = {
        one.name: any("jit" in ast.unparse(mark) for mark in one.decorator_list)
        for one in functions
    }
    known = {name for name, found in is_kernel.items() if found}
    for _ in functions:
        known |= {one.name for one in functions if known & _used(one)}
    return {name for name in known if not is_kernel[name]}


def _used(function: ast.FunctionDef) -> set[str]:
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}


def _tolerances(tree: ast.Module) -> tuple[float, float]:
    """The largest relative and absolute tolerance that the check names."""
    found = {"rtol": 0.0, "atol": 0.0}
    for call in _checks(tree):
        for keyword in call.keywords:
            match keyword:
                case ast.keyword(arg="rtol" | "atol" as name, value=ast.Constant(float(value))):
                    found[name] = max(found[name], value)
    return found["rtol"] or _USUAL, found["atol"] or _USUAL
