"""The sizes that a task is judged in, read from its text; nothing is executed."""

import ast
from typing import Any

from evolve.core.task import Task


def dimensions(task: Task) -> dict[str, int]:
    r"""Whole module constants of a task by name, as they are where times are taken.

    >>> dimensions(Task(name="t", source="N = 4\nSIZES = {'cpu': {'N': 8}}", size="cpu"))
    {'N': 8}
    """
    constants = _constants(task.source)
    sizes = constants.pop("SIZES", None)
    found = dict(constants)
    if isinstance(sizes, dict) and isinstance(sizes.get(task.size), dict):
        found |= sizes[task.size]
    for case in task.cases:
        if case.timed:
            found |= case.constants
            break
    return {name: value for name, value in found.items() if type(value) is int}


def varying(task: Task) -> dict[str, list[Any]]:
    """The constants that differ between cases, with all values that they take."""
    usual = dimensions(task)
    names = {name for case in task.cases for name in case.constants}
    found = {}
    for name in sorted(names):
        values = {case.constants.get(name, usual.get(name)) for case in task.cases}
        if len(values) > 1:
            found[name] = sorted(values, key=lambda value: (str(type(value)), value))
    return found


def _constants(source: str) -> dict[str, Any]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    found[name] = ast.literal_eval(value)
                except (ValueError, TypeError, RecursionError, MemoryError):
                    continue
    return found
