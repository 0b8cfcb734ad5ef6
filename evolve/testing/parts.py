"""Elites, facts and contexts to test parts of a search with, without a store or a device."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Interval
from evolve.core.program import Assignment, Program, instance_digest
from evolve.core.protocols import Context, Elite, EvaluationRequest, Trial
from evolve.core.task import Task
from evolve.core.tunables import render
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task


def make_elite(
    program: str,
    *,
    speedup: float = 1.0,
    sequence: int = 0,
    assignment: Assignment | None = None,
    descriptors: Mapping[str, float | str] | None = None,
) -> Elite:
    """An elite with an interval of 2 % around its log speedup."""
    fitness = math.log(speedup)
    return Elite(
        program=program,
        assignment=assignment or {},
        fitness=Interval(fitness, fitness - 0.02, fitness + 0.02),
        descriptors=descriptors or {},
        sequence=sequence,
        operator="test",
    )


class MemoryFacts:
    """`evolve.core.protocols.Facts` of a run that exists in memory only.

    Args:
        task: what `judge` asks the evaluator about.
        evaluator: the judge.
    """

    def __init__(
        self, *, task: Task | None = None, evaluator: SyntheticEvaluator | None = None
    ) -> None:
        self.task = task or synthetic_task()
        self._evaluator = evaluator or SyntheticEvaluator()
        self._sources: dict[str, str] = {}
        self._trials: dict[str, list[Trial]] = {}
        self._proposed: list[str] = []

    def source(self, program: str) -> str:
        return self._sources[program]

    def trials(self, program: str) -> Sequence[Trial]:
        return tuple(self._trials.get(program, ()))

    def proposals(self, operator: str) -> int:
        return self._proposed.count(operator)

    def seen(self, instance: str) -> bool:
        return any(
            instance_digest(program, trial.assignment) == instance
            for program, trials in self._trials.items()
            for trial in trials
        )

    def judge(
        self,
        program: Program,
        assignment: Assignment | None = None,
        *,
        fidelity: Fidelity = Fidelity.SEARCH,
        operator: str = "test",
    ) -> Elite | None:
        """Record a proposal (or one that was pending) with its verdict.

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
        verdict = self._evaluator.judge(request)
        ratio = verdict.ratios.get("eager")
        self._record(
            program,
            Trial(assignment=assignment, fidelity=fidelity, status=verdict.status, ratio=ratio),
            operator,
        )
        fitness = verdict.fitness("eager")
        if fitness is None or fidelity is Fidelity.SCREEN:
            return None
        return Elite(
            program=program.digest,
            assignment=assignment,
            fitness=fitness,
            descriptors=verdict.descriptors,
            sequence=len(self._proposed) - 1,
            operator=operator,
        )

    def pend(self, program: Program, assignment: Assignment, fidelity: Fidelity) -> None:
        """Record a proposal whose evaluation is under way."""
        trial = Trial(assignment=assignment, fidelity=fidelity, status=None, ratio=None)
        self._record(program, trial, "test")

    def _record(self, program: Program, trial: Trial, operator: str) -> None:
        self._sources[program.digest] = program.source
        trials = self._trials.setdefault(program.digest, [])
        pending = replace(trial, status=None, ratio=None)
        if pending in trials:
            trials[trials.index(pending)] = trial
        else:
            trials.append(trial)
            self._proposed.append(operator)


def make_context(
    facts: MemoryFacts, parents: Iterable[Elite] = (), *, sequence: int = 0
) -> Context:
    """What an operator sees; the same arguments give the same random numbers."""
    chosen = tuple(parents)
    return Context(
        task=facts.task,
        parents=chosen,
        elites=list(chosen),
        facts=facts,
        rng=random.Random(sequence),
        sequence=sequence,
    )
