"""What did not work from a program: a summary of the directions that failed or brought nothing."""

from collections.abc import Iterator, Sequence

from evolve.core.model import Message
from evolve.trajectories.rewards.reward import Grade, grade
from evolve.trajectories.rows import Example
from evolve.trajectories.step import Step, fault_of
from operators.quoting import one_line, quote

LEAST = 3
"""Directions that have to have failed before a program gets a summary."""

MOST = 8
"""Directions that a summary tells of, the newest ones."""

_FAULTS = {
    Grade.BUILT_NOT: "it does not build",
    Grade.WRONG: "it fails",
}
_QUESTION = """\
Kernels for this task are being searched:

{task}

From the program below, attempts were made to make it faster. Which directions failed or brought
nothing, and what came of each?

{program}"""


class Dead:
    """Collects, for every parent, the numbers of its children that were no gain."""

    def __init__(self) -> None:
        self._children: dict[str, list[int]] = {}

    def add(self, step: Step) -> None:
        """Take a step with a parent and a note; what is a gain, or not known, is passed over."""
        if step.parent is not None and step.note and came_to_nothing(step):
            newest = self._children.setdefault(step.parent.program, [])
            newest.append(step.sequence)
            del newest[:-MOST]

    def families(self) -> Iterator[list[int]]:
        """The newest such children of every parent that has enough of them."""
        return (children for children in self._children.values() if len(children) >= LEAST)


def came_to_nothing(step: Step) -> str:
    """Why a step is a dead end, in a phrase; empty where it is none."""
    found = grade(step)
    if found is not None and found in _FAULTS and step.evaluation is not None:
        return f"{_FAULTS[found]} ({step.refuted or fault_of(step.evaluation)})"
    if step.gain is None or step.gain.is_gain:
        return ""
    gain = step.gain
    pace = "slower" if gain.high < 1 else "no faster beyond the error"
    return (
        f"{pace}: {gain.value:.2f} times as fast (95 % interval {gain.low:.2f} to {gain.high:.2f})"
    )


def summary(steps: Sequence[Step]) -> Example:
    """A question about a program, and what became of the directions that were tried from it."""
    parent = steps[0].parent
    question = _QUESTION.format(
        task=quote(steps[0].task.source, "task"),
        program=quote("" if parent is None else parent.code, "program"),
    )
    told = [f"- {one_line(step.note)}: {came_to_nothing(step)}." for step in steps]
    return Example(
        steps=tuple(steps), prompt=(Message("user", question),), completion="\n".join(told)
    )
