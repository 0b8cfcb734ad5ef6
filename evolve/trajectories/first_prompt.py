"""The prompt of a first step: the request of a search without any program."""

import random
from collections.abc import Sequence

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation
from evolve.core.model import Exchange, Message, ModelRequest
from evolve.core.protocols import Attempt, Context, Trial
from evolve.core.task import Task
from evolve.languages.triton import TRITON
from operators.llm.rewrite import RewriteFull


class NoFacts:
    """`evolve.core.protocols.Facts` of a run in which nothing has happened."""

    def source(self, program: str) -> str:
        raise KeyError(program)

    def trials(self, program: str) -> Sequence[Trial]:
        return ()

    def proposals(self, operator: str) -> int:
        return 0

    def seen(self, instance: str) -> bool:
        return False

    def evaluation(self, program: str) -> Evaluation | None:
        return None

    def recent(
        self, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> Sequence[Attempt]:
        return ()

    def children(self, program: str, limit: int) -> Sequence[Attempt]:
        return ()

    def ancestors(self, program: str, limit: int) -> Sequence[Attempt]:
        return ()

    def exchanges(self, operator: str, purpose: str, limit: int) -> Sequence[Exchange]:
        return ()

    def requests(self, operator: str, purpose: str, limit: int) -> Sequence[ModelRequest]:
        return ()


def first_prompt(task: Task, language: str = TRITON.name) -> tuple[Message, ...]:
    """The request of the operator `rewrite_full` without a program to start from.

    Raises:
        UsageError: the language is none, or the task is too long for a prompt.
    """
    context = Context(
        task=task, parents=(), elites=(), facts=NoFacts(), rng=random.Random(0), sequence=0
    )
    asked = RewriteFull(language=language).propose(context)
    if not isinstance(asked, ModelRequest):
        raise UsageError(f"task {task.name}: {asked.reason}")
    return asked.messages
