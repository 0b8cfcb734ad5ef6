"""Problems of a KernelBench checkout, named `kernelbench:LEVEL/ID` (Ouyang et al., 2025)."""

import os
import re
from pathlib import Path

from evolve.core.errors import UsageError

PREFIX = "kernelbench:"
VARIABLE = "KERNELBENCH_PATH"


def find_problem(spec: str, checkout: str | Path | None = None) -> Path:
    """The file of one problem.

    Args:
        spec: e.g. `kernelbench:1/40`.
        checkout: folder of the checkout; None takes it from KERNELBENCH_PATH.

    Raises:
        UsageError: the name is malformed, or there is no such checkout, level or problem.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", spec.removeprefix(PREFIX))
    if match is None:
        raise UsageError(f"task {spec!r}: write it as kernelbench:LEVEL/ID, as kernelbench:1/40.")
    level, problem = match.groups()
    levels = _levels_folder(spec, checkout)
    folder = levels / f"level{int(level)}"
    if not folder.is_dir():
        there = sorted(path.name for path in levels.glob("level*"))
        raise UsageError(f"task {spec}: no {folder} (there: {', '.join(there) or 'no level'}).")
    found = sorted(folder.glob(f"{int(problem)}_*.py"))
    if not found:
        count = len(list(folder.glob("*_*.py")))
        raise UsageError(f"task {spec}: no {int(problem)}_*.py among {count} problems in {folder}.")
    return found[0]


def list_problems(checkout: str | Path | None = None) -> list[tuple[int, int, str]]:
    """Level, number and title of every problem of a checkout, in this order.

    Raises:
        UsageError: there is no such checkout.
    """
    levels = _levels_folder("kernelbench", checkout)
    paths = (path.as_posix() for path in levels.glob("level*/*_*.py"))
    found = (re.search(r"level(\d+)/(\d+)_([^/]*)\.py$", path) for path in paths)
    return sorted((int(match[1]), int(match[2]), match[3]) for match in found if match)


def _levels_folder(spec: str, checkout: str | Path | None) -> Path:
    chosen = checkout or os.environ.get(VARIABLE)
    if not chosen:
        raise UsageError(
            f"task {spec}: no KernelBench checkout is named. Run `git clone "
            f"https://github.com/ScalingIntelligence/KernelBench` and set {VARIABLE} to its folder."
        )
    root = Path(chosen).expanduser()
    for folder in (root / "KernelBench", root):
        if any(folder.glob("level*")):
            return folder
    raise UsageError(
        f"task {spec}: {root} holds no KernelBench/level1. Set {VARIABLE} to a checkout of it."
    )
