"""The signatures of calls in a task's cases: shapes and dtypes, as a dispatch set has them."""

from typing import Any

from torch._subclasses import FakeTensorMode

from evolve.app.dispatch.selection import signature
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.correctness.cases import LoadedCase, load_task

_SEEDS = (0, 1)


def case_signatures(task: Task) -> dict[str, str]:
    """By case the text of an expression that equals the `signature` of a call's arguments in a set.

    Inputs are made as fake tensors (shapes without values), or for real if that needs values.
    Empty for a case whose shapes change from one draw to the next.

    Raises:
        UsageError: the task does not run.
    """
    found = {}
    for case in load_task(task).cases:
        said = {_text(signature(_arguments(case, seed))) for seed in _SEEDS}
        found[case.name] = said.pop() if len(said) == 1 else ""
    return found


def _arguments(case: LoadedCase, seed: int) -> list[Any]:
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return case.arguments(seed)
    except UsageError:  # an operation that needs values; a real fault comes again
        return case.arguments(seed)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + "".join(f"{_text(each)}, " for each in value).strip() + ")"
    return repr(value)  # of a number, a type's name, or a dtype
