"""Arguments of Python functions as the `key=value` words of `evolve run`."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias

from evolve.app.config.grammar import value_text
from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.report.text import make_folder, write_text
from evolve.tasks.module_source import task_source

Inputs: TypeAlias = Callable[[], Any] | None
_NOT_TEXT = ("null", "true", "false", "nan", "inf")


def as_words(settings: Mapping[str, Any]) -> list[str]:
    """Settings by dotted name as words of the command line; options of groups without quotes."""
    words = []
    for name, value in settings.items():
        is_name = isinstance(value, str) and value.isascii() and value.isidentifier()
        is_bare = is_name and value.lower() not in _NOT_TEXT
        words.append(f"{name}={value if is_bare else value_text(value, name)}")
    return words


def limits(budget: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """A budget as settings of `termination`.

    Raises:
        UsageError: it is neither a duration nor a mapping of limits.
    """
    if budget is None:
        return {}
    if isinstance(budget, str):
        return {"termination.wall_time": budget}
    if not isinstance(budget, Mapping):
        raise UsageError(
            f"budget={budget!r}: write a duration, budget='10m', or limits by name, "
            f"budget={{'evaluations': {budget!r}}}"
        )
    return {f"termination.{name}": limit for name, limit in budget.items()}


def together(given: Mapping[str, Any], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings that the parameters stand for, with further ones.

    Raises:
        UsageError: a setting that a parameter has set already.
    """
    found = dict(given)
    if not isinstance(settings, Mapping | None):
        raise UsageError(f"settings={settings!r}: write a dict, settings={{'seed': 1}}")
    for name, value in (settings or {}).items():
        if name in found:
            raise UsageError(
                f"settings[{name!r}]={value!r}: another argument has set {name} to "
                f"{found[name]!r}; leave one of them out"
            )
        found[name] = value
    return found


def task_word(task: Any, inputs: Inputs, init_inputs: Inputs, folder: Path) -> str:
    """The value for a task in a configuration: its name, or the path of its file.

    The text of a class or a function is written to a file of its own below `folder`, where later
    searches and the command line find it again.

    Raises:
        UsageError: it is no task, or its text cannot be had.
    """
    if isinstance(task, type | FunctionType):
        text = task_source(task, inputs, init_inputs)
        folder = make_folder(folder / framed_digest("module", text)[:12], "store")
        return _local(str(write_text(folder / f"{task.__name__}.py", text)))
    if not isinstance(task, str | os.PathLike):
        raise UsageError(
            f"task={task!r}: give the name of a shipped task, the path of a file, "
            "kernelbench:1/40, a function that was written with def, or a torch.nn.Module class "
            "(not an instance of one)"
        )
    for name, value in (("inputs", inputs), ("init_inputs", init_inputs)):
        if value is not None:
            raise UsageError(
                f"{name}={value!r} has no effect: task={task} names a file, which makes its own "
                f"inputs; leave {name} out"
            )
    return task if isinstance(task, str) else _local(os.fspath(task))


def _local(path: str) -> str:
    """A relative path as one: a bare word would name a shipped task."""
    return path if path.startswith((".", "/", "~")) else f"./{path}"
