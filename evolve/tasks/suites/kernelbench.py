"""KernelBench (Ouyang et al., 2025) from a user's checkout: tasks `kernelbench:LEVEL/ID`."""

import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.suites import Problem, TaskText
from evolve.tasks.files import read_text

NAME = "kernelbench"
PREFIX = f"{NAME}:"
VARIABLE = "KERNELBENCH_PATH"
_REMEDY = (
    "Run `git clone https://github.com/ScalingIntelligence/KernelBench` and set "
    f"{VARIABLE} to its folder"
)


class KernelBench:
    """The fourth level, whole models, is taken only if it is named."""

    name = NAME
    variable = VARIABLE
    levels: tuple[str, ...] = ("1", "2", "3")

    def problems(self, checkout: Path | None) -> Sequence[Problem]:
        return [
            Problem(f"{PREFIX}{level}/{number}", f"{level}/{number}", title, str(level))
            for level, number, title in list_problems(checkout)
        ]

    def task(self, label: str, checkout: Path | None) -> TaskText:
        path = find_problem(label, checkout)
        if path.parent.name == "level4":
            _require_weights(label, read_text(path))
        return TaskText(read_text(path), category=path.parent.name)


def _require_weights(label: str, source: str) -> None:
    """UsageError for a whole model whose weights are not on this machine."""
    found = re.search(r"""model_name\s*=\s*["']([^"']+)["']""", source)
    folder = f"models--{found[1].replace('/', '--')}" if found else ""
    hub = Path.home() / ".cache" / "huggingface" / "hub"  # the only one that a judge sees
    if importlib.util.find_spec("transformers") is None:
        lacking = "the package transformers, which is not installed"
    elif found and not (hub / folder / "snapshots").is_dir():
        lacking = f"the weights of {found[1]}, which are not in {hub}"
    else:
        return
    raise UsageError(
        f"task {PREFIX}{label}: level 4 takes whole models from the Hugging Face hub. It needs "
        f"{lacking}. Install or download it first, or leave level 4 out."
    )


def find_problem(label: str, checkout: Path | None = None) -> Path:
    """The file of one problem.

    Args:
        label: e.g. `1/40`.
        checkout: folder of the checkout; None takes it from KERNELBENCH_PATH.

    Raises:
        UsageError: the label is malformed, or there is no such checkout, level or problem.
    """
    spec = PREFIX + label
    match = re.fullmatch(r"(\d+)/(\d+)", label)
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


def list_problems(checkout: Path | None = None) -> list[tuple[int, int, str]]:
    """Level, number and title of every problem of a checkout, in this order.

    Raises:
        UsageError: there is no such checkout.
    """
    levels = _levels_folder(NAME, checkout)
    paths = (path.as_posix() for path in levels.glob("level*/*_*.py"))
    found = (re.search(r"level(\d+)/(\d+)_([^/]*)\.py$", path) for path in paths)
    return sorted((int(match[1]), int(match[2]), match[3]) for match in found if match)


def _levels_folder(spec: str, checkout: Path | None) -> Path:
    asked = f"suite {NAME}" if spec == NAME else f"task {spec}"
    chosen = checkout or os.environ.get(VARIABLE)
    if not chosen:
        raise UsageError(f"{asked}: no KernelBench checkout is named. {_REMEDY}.")
    root = Path(chosen).expanduser()
    for folder in (root / "KernelBench", root):
        if any(folder.glob("level*")):
            return folder
    if not root.is_dir():
        raise UsageError(f"{asked}: there is no folder {root}. {_REMEDY}.")
    raise UsageError(f"{asked}: {root} has no KernelBench/level1. {_REMEDY}.")
