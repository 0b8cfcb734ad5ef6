"""What operators propose that need no parents, one proposal after the other."""

import itertools
import random
from collections.abc import Iterator

from evolve.core.protocols import Context, Declined, Failed, Operator, Proposal
from evolve.core.task import Task

_NAME = "own"


class _Proposed:
    """The facts of a run that holds so many proposals of the operator, which is called `own`."""

    def __init__(self, count: int) -> None:
        self._count = count

    def proposals(self, operator: str) -> int:
        return self._count if operator == _NAME else 99


def propose(
    operator: Operator, task: Task, count: int = 0, **device: str
) -> Proposal | Declined | Failed:
    """What it proposes after so many proposals; the others are what is known of the device."""
    context = Context(
        task=task,
        parents=(),
        elites=(),
        facts=_Proposed(count),
        rng=random.Random(0),
        sequence=count,
        device=device,
        operator=_NAME,
    )
    return operator.propose(context)


def proposals(operator: Operator, task: Task, **device: str) -> Iterator[Proposal | Failed]:
    """All of them, until it declines."""
    for count in itertools.count():
        found = propose(operator, task, count, **device)
        if isinstance(found, Declined):
            return
        yield found
