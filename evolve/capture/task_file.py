"""The task file of a part: the text around its `Model`, and what it says of the recorded calls."""

import ast
import pprint
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evolve.capture.jobs import Part
from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.core.task import Task

HELPER = "evolve.testing.suite_tasks.captured"
"""The module from which `drawn` is imported."""

GRADIENTS = "evolve.testing.suite_tasks.gradients"
"""The module from which the class of backward tasks is imported."""

RESERVED = ("CALL", "CALLS", "PART", "MODE", "drawn", "get_inputs", "get_init_inputs")
"""Names of a task's file that no name of the user's may take."""

_TEXT = '''\
"""{heading}

CALLS describes the arguments of recorded calls; their values are drawn anew, within the
range that they had. Parameters are drawn by the constructor.
"""

{model}

{mode}CALL = {first!r}
CALLS = {calls}
PART = {part}


def get_inputs():
    return drawn(globals(), CALLS[CALL])


def get_init_inputs():
    return []
'''


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured task.

    Attributes:
        name: of the task.
        part: whose calls it has; read from a file, its constructor is that text's digest.
        device: type of their device.
        calls: descriptions of their arguments, by the name of the case.
        is_backward: whether it is the backward pass; the first argument is then the gradient of
            the outcome.
    """

    name: str
    part: Part
    device: str
    calls: Mapping[str, Any]
    is_backward: bool = False


def file_text(heading: str, model: str, task: Captured) -> str:
    """The text of a task's file.

    Args:
        heading: its first line.
        model: the text that makes `Model`, and imports `drawn` from `HELPER`.
        task: with one call at least.
    """
    part = {**task.part._asdict(), "constructor": constructor_digest(task.part.constructor)}
    mode = "train" if task.part.training else "eval"
    return _TEXT.format(
        heading=heading,
        model=model,
        mode=f"MODE = {mode!r}\n" if task.part.constructor else "",
        first=next(iter(task.calls)),
        calls=_literal(task.calls),
        part=_literal(part | {"device": task.device, "is_backward": task.is_backward}),
    )


def captured(task: Task) -> Captured:
    """The part and the calls that a task was made of.

    Raises:
        UsageError: it was not captured.
    """
    values = {}
    for statement in ast.parse(task.source).body:
        match statement:
            case ast.Assign([ast.Name("PART" | "CALLS" as name)], ast.Dict() as value):
                values[name] = ast.literal_eval(value)
    if len(values) != 2:
        raise UsageError(
            f"task {task.name} was not captured: its file has no PART and CALLS. Tasks to put back "
            "are made by `evolve tasks capture`."
        )
    part = values["PART"]
    device, is_backward = part.pop("device"), part.pop("is_backward", False)
    return Captured(task.name, Part(**part), device, values["CALLS"], is_backward)


def constructor_digest(text: str) -> str:
    """What stands for a constructor's text in a task's file; empty for a function's."""
    return framed_digest(text)[:16] if text else ""


def _literal(value: object) -> str:
    return pprint.pformat(value, width=100, sort_dicts=False)
