"""A summary of the directions from a program that failed or gained nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence

from evolve.core.model import Message
from evolve.trajectories.rewards.reward import Grade, grade
from evolve.trajectories.step import Step, fault_of
from evolve.trajectories.views.rows import Example
from operators.quoting import one_line, quote

MIN_CHILDREN = 3
"""Directions that have to have failed before a program gets a summary."""

MAX_CHILDREN = 8
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
    """Collects, for every parent, the numbers of its children that were no gain.

    Attributes:
        untold: by reason, how many of them are in no family.
    """

    def __init__(self) -> None:
        self._children: dict[str, dict[str, int]] = {}  # by parent, the newest of each direction
        self.untold: Counter[str] = Counter()

    def add(self, step: Step) -> str:
        """Take a step; returns why it is none of them, as a phrase, empty if it is one."""
        if step.parent is None:
            return "a first step"
        if not (tried := _tried(step)):
            return "does not say what was tried"
        if not came_to_nothing(step):
            return "a gain, or not known to be none"
        newest = self._children.setdefault(step.parent.program, {})
        if newest.pop(tried, None) is not None:
            self.untold["the same direction is told"] += 1
        newest[tried] = step.sequence
        if len(newest) > MAX_CHILDREN:
            del newest[next(iter(newest))]
            self.untold["newer ones are told"] += 1
        return ""

    def families(self) -> Iterator[list[int]]:
        """The newest such children of every parent that has enough of them."""
        for children in self._children.values():
            if len(children) >= MIN_CHILDREN:
                yield list(children.values())
            else:
                self.untold[f"fewer than {MIN_CHILDREN} from its parent"] += len(children)


def _tried(step: Step) -> str:
    """The note of a step as the beginning of a sentence."""
    return one_line(step.note).rstrip(" .:;,")


def came_to_nothing(step: Step) -> str:
    """Why a step is a dead end, in a phrase; empty if it is none."""
    found = grade(step)
    if found is not None and found in _FAULTS and step.evaluation is not None:
        return f"{_FAULTS[found]} ({step.refuted or fault_of(step.evaluation)})"
    if step.gain is None or step.gain.is_gain:
        return ""
    return "it is slower" if step.gain.high < 1 else "it is no faster beyond the error"


def summary(steps: Sequence[Step]) -> Example:
    """A question about a program, and the results of the directions that were tried from it."""
    parent = steps[0].parent
    question = _QUESTION.format(
        task=quote(steps[0].task.source, "task"),
        program=quote("" if parent is None else parent.code, "program"),
    )
    told = [f"- {_tried(step)}: {came_to_nothing(step)}." for step in steps]
    return Example(
        steps=tuple(steps), prompt=(Message("user", question),), completion="\n".join(told)
    )
