"""A run's facts in memory, for tests of operators without a store."""

import math
from collections.abc import Sequence
from dataclasses import replace

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.model import Exchange, ModelRequest
from evolve.core.program import Assignment, Program, instance_digest
from evolve.core.protocols import Attempt, Elite, EvaluationRequest, Trial
from evolve.core.source.tunables import render
from evolve.core.task import Task
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task


class MemoryFacts:
    """`evolve.core.protocols.Facts` of a run that exists in memory only.

    Args:
        task: the task of the requests to the evaluator.
        evaluator: the judge.
    """

    def __init__(
        self, *, task: Task | None = None, evaluator: SyntheticEvaluator | None = None
    ) -> None:
        self.task = task or synthetic_task()
        self.attempts: list[Attempt] = []
        self._evaluator = evaluator or SyntheticEvaluator()
        self._sources: dict[str, str] = {}
        self._evaluations: dict[str, list[Evaluation]] = {}
        self._exchanges: list[tuple[str, Exchange]] = []
        self._requests: list[tuple[str, ModelRequest]] = []

    def source(self, program: str) -> str:
        return self._sources[program]

    def trials(self, program: str) -> Sequence[Trial]:
        return tuple(
            Trial(assignment=a.assignment, fidelity=a.fidelity, status=a.status, ratio=a.ratio)
            for a in self.attempts
            if a.program == program
        )

    def proposals(self, operator: str) -> int:
        return sum(attempt.operator == operator for attempt in self.attempts)

    def seen(self, instance: str) -> bool:
        return any(
            attempt.program and instance_digest(attempt.program, attempt.assignment) == instance
            for attempt in self.attempts
        )

    def evaluation(self, program: str) -> Evaluation | None:
        """The one with the best ratio, the newest among equals."""

        def key(evaluation: Evaluation) -> float:
            ratio = evaluation.ratios.get("eager")
            return ratio.value if ratio else -math.inf

        return max(reversed(self._evaluations.get(program, [])), key=key, default=None)

    def recent(
        self, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> Sequence[Attempt]:
        told = [a for a in reversed(self.attempts) if a.status is not None or a.failure]
        found = [
            attempt
            for attempt in told
            if operator in (None, attempt.operator)
            and failed in (None, attempt.status is not Status.CORRECT)
        ]
        return found[:limit]

    def children(self, program: str, limit: int) -> Sequence[Attempt]:
        found = [
            attempt
            for attempt in reversed(self.attempts)
            if attempt.parents[:1] == (program,) and attempt.program != program
        ]
        return found[:limit]

    def ancestors(self, program: str, limit: int) -> Sequence[Attempt]:
        line: list[Attempt] = []
        wanted: str | None = program
        while wanted is not None and len(line) < limit:
            made = next((a for a in self.attempts if a.program == wanted), None)
            line += [made] if made else []
            wanted = made.parents[0] if made and made.parents else None
        return line[::-1]

    def exchanges(self, operator: str, purpose: str, limit: int) -> Sequence[Exchange]:
        found = [
            exchange
            for name, exchange in reversed(self._exchanges)
            if name == operator and exchange.request.purpose == purpose
        ]
        return found[:limit]

    def requests(self, operator: str, purpose: str, limit: int) -> Sequence[ModelRequest]:
        found = [
            asked
            for name, asked in reversed(self._requests)
            if name == operator and asked.purpose == purpose
        ]
        return found[:limit]

    def judge(
        self,
        program: Program,
        assignment: Assignment | None = None,
        *,
        fidelity: Fidelity = Fidelity.SEARCH,
        operator: str = "test",
        parents: Sequence[str] = (),
        note: str = "",
        verdict: Evaluation | None = None,
    ) -> Elite | None:
        """Record a proposal (or one that was pending) with its verdict.

        Args:
            program: the proposed one.
            assignment: of its tunables.
            fidelity: how far it is judged.
            operator: its maker.
            parents: their digests.
            note: of the operator.
            verdict: planted; None asks the evaluator.

        Returns:
            The elite that a full, correct evaluation makes, else None.
        """
        assignment = assignment or {}
        request = EvaluationRequest(
            task=self.task,
            instance=instance_digest(program.digest, assignment),
            source=render(program.source, assignment),
            fidelity=fidelity,
        )
        verdict = verdict or self._evaluator.judge(request)
        self._evaluations.setdefault(program.digest, []).append(verdict)
        attempt = self._record(
            Attempt(
                sequence=len(self.attempts),
                operator=operator,
                parents=tuple(parents),
                program=program.digest,
                assignment=assignment,
                fidelity=fidelity,
                note=note,
                status=verdict.status,
                custom=verdict.custom,
                ratio=verdict.ratios.get("eager"),
                feedback=verdict.feedback,
            ),
            program.source,
        )
        fitness = verdict.fitness("eager")
        if fitness is None or fidelity is Fidelity.SCREEN:
            return None
        return Elite(
            program=program.digest,
            assignment=assignment,
            fitness=fitness,
            descriptors=verdict.descriptors,
            sequence=attempt.sequence,
            operator=operator,
            parents=attempt.parents,
        )

    def pend(
        self,
        program: Program,
        assignment: Assignment | None = None,
        fidelity: Fidelity = Fidelity.SEARCH,
        *,
        operator: str = "test",
    ) -> None:
        """Record a proposal whose evaluation is under way."""
        attempt = Attempt(
            sequence=len(self.attempts),
            operator=operator,
            program=program.digest,
            assignment=assignment or {},
            fidelity=fidelity,
        )
        self._record(attempt, program.source)

    def fail(self, reason: str, parents: Sequence[str] = (), *, operator: str = "test") -> None:
        """Record a step of which no program came."""
        number = len(self.attempts)
        self.attempts.append(
            Attempt(sequence=number, operator=operator, parents=tuple(parents), failure=reason)
        )

    def exchange(self, operator: str, exchange: Exchange) -> None:
        """Record a completed call of an operator."""
        self.asked(operator, exchange.request)
        self._exchanges.append((operator, exchange))

    def asked(self, operator: str, request: ModelRequest) -> None:
        """Record a request of an operator that has no answer yet."""
        self._requests.append((operator, request))

    def _record(self, attempt: Attempt, source: str) -> Attempt:
        """Add a step, or put it in the place of its pending self."""
        self._sources[attempt.program or ""] = source
        for place, held in enumerate(self.attempts):
            same = (held.program, held.assignment, held.fidelity) == (
                attempt.program,
                attempt.assignment,
                attempt.fidelity,
            )
            if same and held.status is None and attempt.status is not None:
                self.attempts[place] = replace(attempt, sequence=held.sequence)
                return self.attempts[place]
        self.attempts.append(attempt)
        return attempt
