"""Memory across runs: findings of finished runs on the same kind of operation, for a new run.

Failure rules follow AdaExplore (arXiv 2604.16625, section on failure-driven adaptation; code
gh:StigLidu/AdaExplore `skill_memory/`): failures that occurred at least three times become rules,
which every prompt shows with their frequency. There a model writes the rules; here they are the
judge's messages, which needs no model. Ideas, summaries and the limit to the same kind of operation
are additions of this project.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from evolve.core.recalled import Recalled
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.core.source.tokens import estimate_tokens
from evolve.core.task import Task
from operators.checks import check_whole
from operators.knowledge import operation_of
from operators.memory.ideas import ideas, skills
from operators.memory.past import Past
from operators.memory.rules import rules
from operators.prompting.prompt_context import recalled_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """How much of earlier runs a new run uses.

    Args:
        runs: how many of the newest finished runs are looked at; 0 for none.
        seen: how often a failure has to occur to become a rule.
        tokens: the most tokens of all findings in a prompt.

    Raises:
        UsageError: a setting is out of range.
    """

    runs: int = 8
    seen: int = 3
    tokens: int = 800

    def __post_init__(self) -> None:
        check_whole("memory.runs", self.runs, least=0)
        check_whole("memory.seen", self.seen, least=1)
        check_whole("memory.tokens", self.tokens, least=0)

    def of(self, store: RunStore, finished: Sequence[RunRow], task: Task) -> list[Recalled]:
        """Findings of the newest of the finished runs on the task's kind of operation."""
        alike = [run for run in finished if operation_kind(run.task) == operation_kind(task)]
        newest = sorted(alike, key=lambda run: -run.id)[: self.runs]
        pasts = [Past.read(store, run) for run in newest]
        kinds = (ideas(store, pasts), rules(store, pasts, self.seen), skills(store, pasts))
        in_turn = chain.from_iterable(zip_longest(*kinds))
        return list(self._within(each for each in in_turn if each is not None))

    def _within(self, found: Iterator[Recalled]) -> Iterator[Recalled]:
        """Findings in order, without those that exceed the tokens left."""
        used = 0
        for each in found:
            cost = estimate_tokens(recalled_text(each))
            if used + cost <= self.tokens:
                used += cost
                yield each


def operation_kind(task: Task) -> str:
    """The kind of operation of a task; its own name if the kind is unknown."""
    return operation_of(task.category, task.source) or f"task {task.name}"
