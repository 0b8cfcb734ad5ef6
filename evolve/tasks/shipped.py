"""The tasks that ship with this project: their places and subjects."""

import ast
from pathlib import Path
from typing import NamedTuple

from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse


class TaskInfo(NamedTuple):
    """One line of a listing."""

    name: str
    description: str
    category: str


def library_folder() -> Path:
    """The folder of shipped tasks: inside the installed package, or the checkout's examples."""
    here = Path(__file__).resolve().parent
    checkout = here.parents[1]
    in_checkout = (checkout / "pyproject.toml").is_file()
    folder = checkout / "examples" / "tasks" if in_checkout else here / "library"
    if not folder.is_dir():
        raise UsageError(f"the shipped tasks are missing in {folder}. Install the package again.")
    return folder


def shipped_names() -> list[str]:
    """Names of the shipped tasks in alphabetical order."""
    return sorted(path.parent.name for path in library_folder().glob("*/task.py"))


def list_tasks() -> list[TaskInfo]:
    """Name, one-line description and category of every shipped task; executes none of them."""
    folder = library_folder()
    return [_info(name, (folder / name / "task.py").read_text()) for name in shipped_names()]


def _info(name: str, source: str) -> TaskInfo:
    tree = parse(source)
    lines = (ast.get_docstring(tree) or "").splitlines()
    return TaskInfo(name, lines[0] if lines else "", category_of(tree))


def category_of(tree: ast.Module) -> str:
    """The string that a task file assigns to `CATEGORY`, empty if it has none."""
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name("CATEGORY")], ast.Constant(str(category))):
                return category
    return ""
