"""A suite's tasks, one after the other: which can be judged, and which tell kernels from none.

Each is read, and by a worker loaded, its reference run, and its null candidates judged. No search
and no other candidate takes part.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from evolve.core.errors import UsageError
from evolve.core.suites import Problem
from evolve.core.task import Task


class State(StrEnum):
    """The outcome of a check."""

    SOUND = "sound"
    WEAK = "weak"  # an answer that needs no work passes in a timed case
    NEEDS_GPU = "needs a GPU"
    NOT_JUDGED = "not judged"  # its reference does not run, or no outcome can be compared with it
    UNREADABLE = "unreadable"  # no task can be made of its files


NO_GPU = (
    "0 active drivers",
    "ATen_cuda",
    "CUDA",
    "NVIDIA driver",
    "not implemented on the CPU",
)  # what errors say of code that only runs on a GPU


@dataclass(frozen=True, slots=True)
class Checked:
    """A problem with its state; `detail` says why, `revision` is that of its task."""

    label: str
    state: State
    detail: str = ""
    revision: str = ""


class Auditor(Protocol):
    """A worker that runs a task's reference and its null candidates."""

    async def audit(self, task: Task) -> list[dict[str, str]] | None: ...


async def check_suite(
    problems: Sequence[Problem],
    read: Callable[[str], Task],
    auditors: Sequence[Auditor],
    known: Iterable[Checked],
    tell: Callable[[Checked], None],
    *,
    has_gpu: bool,
) -> list[Checked]:
    """The state of each problem, in order; those that are `known` at their revision stay as known.

    Args:
        problems: of the suite.
        read: gives the task of a spec.
        auditors: each has one task at a time, so that what ends a worker is its task.
        known: from an earlier call.
        tell: takes each state as it is found.
        has_gpu: whether tasks run on one here.

    Raises:
        EvaluatorUnavailable: an auditor cannot go on.
    """
    before = {(one.label, one.revision): one for one in known}
    found: dict[str, Checked] = {}
    waiting = iter(problems)

    async def work(auditor: Auditor) -> None:
        for problem in waiting:
            try:
                task = read(problem.spec)
            except UsageError as error:
                checked = Checked(problem.label, State.UNREADABLE, str(error))
            else:
                if one := before.get((problem.label, task.revision)):
                    found[problem.label] = one
                    continue
                checked = await _audited(problem.label, task, auditor, has_gpu)
            found[problem.label] = checked
            if checked not in known:  # what cannot be read is found so again each time
                tell(checked)

    await asyncio.gather(*map(work, auditors))
    return [found[problem.label] for problem in problems]


async def _audited(label: str, task: Task, auditor: Auditor, has_gpu: bool) -> Checked:
    try:
        weaknesses = await auditor.audit(task)
    except UsageError as error:
        lacks = not has_gpu and any(sign in str(error) for sign in NO_GPU)
        state = State.NEEDS_GPU if lacks else State.NOT_JUDGED
        return Checked(label, state, str(error), task.revision)
    if weaknesses is None:  # nothing is known then; the next call asks again
        return Checked(label, State.NOT_JUDGED, "the worker gave no answer", "")
    timed = [one for one in weaknesses if _is_timed(task, one["passed_by"])]
    passed = Counter(one["name"] for one in timed)
    names = ", ".join(f"{name} ({cases} timed cases)" for name, cases in sorted(passed.items()))
    if names:
        return Checked(label, State.WEAK, f"passed by: {names}", task.revision)
    return Checked(label, State.SOUND, "", task.revision)


def _is_timed(task: Task, case: str) -> bool:
    """Checked-only cases are there together: a cheat has to pass all of them, and gains nothing."""
    name = case.partition("/group")[0]
    return all(one.timed for one in task.cases if one.name == name)


def count(found: Iterable[Checked]) -> dict[State, int]:
    """How many problems are in each state, in the order of `State`."""
    counts = Counter(one.state for one in found)
    return {state: counts[state] for state in State if counts[state]}


def read_checked(path: Path) -> list[Checked]:
    """The lines of a file that `line_of` wrote; one that was cut off is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
            found.append(Checked(**{**entry, "state": State(entry["state"])}))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def line_of(checked: Checked) -> str:
    """A line of JSON."""
    return json.dumps(asdict(checked)) + "\n"
