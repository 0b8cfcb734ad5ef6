"""What the calls of a task's cases look like: shapes and dtypes, as a dispatch set tells them."""

from typing import Any

from torch import Tensor
from torch._subclasses import FakeTensorMode

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.correctness.cases import LoadedCase, load_task

_SEEDS = (0, 1)


def signatures(task: Task) -> dict[str, str]:
    """By case the text of an expression that equals `_signature` of a call's arguments.

    Inputs are made as fake tensors (shapes without values), or for real if that needs values.
    Empty for a case whose shapes change from one draw to the next.

    Raises:
        UsageError: the task does not run.
    """
    found = {}
    for case in load_task(task).cases:
        said = {_text(_arguments(case, seed)) for seed in _SEEDS}
        found[case.name] = said.pop() if len(said) == 1 else ""
    return found


def _arguments(case: LoadedCase, seed: int) -> list[Any]:
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return case.arguments(seed)
    except UsageError:  # an operation that needs values; a real fault comes again
        return case.arguments(seed)


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"({tuple(value.shape)!r}, {value.dtype})"
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return "(" + "".join(f"{_text(each)}, " for each in value).strip() + ")"
    return repr(type(value).__name__)
