"""Suites by name: those of this package, and those that other packages register.

Another package adds a suite by an entry point of the group `evolve.suites`, whose name is the
suite's and whose object is a class of the protocol `evolve.core.suites.Suite`.
"""

import difflib
import os
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.registered import loaded
from evolve.core.suites import Problem, Suite
from evolve.tasks.suites.agent_kernel_arena import AgentKernelArena
from evolve.tasks.suites.atrex import Atrex
from evolve.tasks.suites.backendbench import BackendBench
from evolve.tasks.suites.checkout import commit_of
from evolve.tasks.suites.gpu_mode import GpuMode
from evolve.tasks.suites.kernelbench import KernelBench
from evolve.tasks.suites.kernelbench_hard import KernelBenchHard
from evolve.tasks.suites.kernelbench_x import KernelBenchX
from evolve.tasks.suites.multikernelbench import MultiKernelBench
from evolve.tasks.suites.robust_kbench import RobustKBench
from evolve.tasks.suites.shipped import Shipped
from evolve.tasks.suites.tritonbench import TritonBenchG, TritonBenchT
from evolve.tasks.suites.workloads import FlashinferBench, SolExecBench

GROUP = "evolve.suites"
_OWN: dict[str, Callable[[], Suite]] = {
    suite.name: suite
    for suite in (
        AgentKernelArena,
        Atrex,
        BackendBench,
        FlashinferBench,
        GpuMode,
        KernelBench,
        KernelBenchHard,
        KernelBenchX,
        MultiKernelBench,
        RobustKBench,
        Shipped,
        SolExecBench,
        TritonBenchG,
        TritonBenchT,
    )
}


def suites() -> tuple[str, ...]:
    """Names of all suites that are known here."""
    return (*_OWN, *(point.name for point in entry_points(group=GROUP) if point.name not in _OWN))


def setting(name: str, value: str) -> str:
    """An option as `evolve bench` takes it."""
    return f"{name}=[{value}]" if name == "level" else f"{name}={value}"


def suite_named(name: str, option: Callable[[str, str], str] = setting) -> Suite:
    """The suite of this name.

    Args:
        name: of the suite.
        option: how messages spell an option, given its name and value.

    Raises:
        UsageError: there is none, or the package that brings it fails.
    """
    if name in _OWN:
        return _OWN[name]()
    others: list[Suite] = loaded(GROUP, lambda found: found(), name)
    if others:
        return others[0]
    close = difflib.get_close_matches(name, suites(), 1)
    hint = f"Did you mean {close[0]}?" if close else f"Choose one of {', '.join(suites())}."
    raise UsageError(f"{option('suite', name)}: there is no such suite. {hint}")


def suite_commit(name: str, path: str | None = None) -> str:
    """The commit of a suite's checkout; empty if it has none."""
    variable = suite_named(name).variable
    chosen = path or (os.environ.get(variable) if variable else None)
    return commit_of(Path(chosen).expanduser()) if chosen else ""


def suite_problems(
    name: str,
    *,
    path: str | None = None,
    levels: Sequence[str] = (),
    only: Sequence[str] = (),
    option: Callable[[str, str], str] = setting,
) -> list[Problem]:
    """The problems of a suite in its own order.

    Args:
        name: of the suite.
        path: the checkout; None takes it from the suite's environment variable.
        levels: of difficulty; empty for those that the suite names.
        only: labels of problems (`1/40`, `softmax`); empty for all.
        option: how messages spell an option, given its name and value.

    Raises:
        UsageError: no such suite, checkout, level or problem.
    """
    suite = suite_named(name, option)
    if path and not suite.variable:
        raise UsageError(f"{option('path', path)}: suite {name} needs no checkout; leave it out")
    try:
        found = suite.problems(Path(path) if path else None)
    except UsageError as error:
        if not suite.variable:
            raise
        given = f"{option('path', path)}: " if path else ""
        remedy = f"Or give the checkout's folder: {option('path', 'FOLDER')}."
        raise UsageError(f"{given}{str(error).rstrip('.')}. {remedy}") from error
    known = sorted({problem.level for problem in found if problem.level})
    for level in levels:
        if level not in known:
            there = f"it has {', '.join(known)}" if known else "it has none; leave this out"
            raise UsageError(f"{option('level', level)}: not in suite {name}; {there}")
    wanted = tuple(levels) or (() if only else suite.levels)
    found = [problem for problem in found if not wanted or problem.level in wanted]
    if not found:
        raise UsageError(
            f"suite {name}: no problem at level {', '.join(wanted)} in {path or 'its checkout'}; "
            "check the path"
        )
    return _only(name, found, only) if only else found


def _only(name: str, found: Sequence[Problem], only: Sequence[str]) -> list[Problem]:
    known = {problem.label: problem for problem in found}
    for label in only:
        if label not in known:
            close = difflib.get_close_matches(label, known, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(
                f"suite {name} has no problem {label!r}; {hint}"
                f"`evolve tasks list --suite {name}` prints them"
            )
    return [problem for problem in found if problem.label in only]
