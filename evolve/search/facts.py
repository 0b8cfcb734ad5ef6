"""`evolve.core.protocols.Facts` of one run of a store."""

from collections.abc import Sequence

from evolve.core.evaluation import Evaluation
from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Attempt, Trial
from evolve.core.run_store import RunStore


class RunFacts:
    """The questions that operators may ask about a run; the protocol describes each method."""

    def __init__(self, store: RunStore, run: int) -> None:
        self._store = store
        self._run = run

    def source(self, program: str) -> str:
        return self._store.source(program)

    def trials(self, program: str) -> Sequence[Trial]:
        return self._store.trials(self._run, program)

    def proposals(self, operator: str) -> int:
        return self._store.proposals(self._run, operator)

    def seen(self, instance: str) -> bool:
        return self._store.seen(self._run, instance)

    def evaluation(self, program: str) -> Evaluation | None:
        return self._store.attempt_evaluation(self._run, program)

    def recent(
        self, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> Sequence[Attempt]:
        return self._store.recent(self._run, limit, operator=operator, failed=failed)

    def children(self, program: str, limit: int) -> Sequence[Attempt]:
        return self._store.children(self._run, program, limit)

    def ancestors(self, program: str, limit: int) -> Sequence[Attempt]:
        return self._store.line(self._run, program, limit)

    def exchanges(self, operator: str, purpose: str, limit: int) -> Sequence[Exchange]:
        return self._store.exchanges(self._run, operator, purpose, limit)

    def requests(self, operator: str, purpose: str, limit: int) -> Sequence[ModelRequest]:
        return self._store.requests(self._run, operator, purpose, limit)
