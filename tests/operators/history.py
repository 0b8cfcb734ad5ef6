"""A run's facts in memory, with everything that prompts may ask, on the synthetic task."""

import random
from collections.abc import Mapping, Sequence

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.model import (
    CallStatus,
    Exchange,
    ModelCard,
    ModelReply,
    ModelRequest,
)
from evolve.core.program import Assignment, Program, instance_digest
from evolve.core.protocols import (
    Attempt,
    Context,
    Elite,
    EvaluationRequest,
    Trial,
)
from evolve.core.tunables import render
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task

PLAIN = '''\
"""A synthetic kernel with fixed constants."""

BLOCK = 16
UNROLL = 1
STAGES = 1


def tile(x):
    return x[:BLOCK]


class ModelNew:
    def forward(self, x):
        return tile(x) * UNROLL * STAGES
'''

DEVICE = {"device_class": "cpu: test", "cpu": "Test, 2 cores", "compiler": "g++ 14"}


class History:
    """`evolve.core.protocols.Facts` of a run that exists in memory, and the contexts it gives."""

    def __init__(self, evaluator: SyntheticEvaluator | None = None, **task: object) -> None:
        self.task = synthetic_task(**task)
        self.evaluator = evaluator or SyntheticEvaluator(noise=0.0)
        self.attempts: list[Attempt] = []
        self.calls: list[tuple[str, Exchange]] = []
        self._sources: dict[str, str] = {}
        self._evaluations: dict[str, list[Evaluation]] = {}

    def add(
        self,
        source: str,
        parents: Sequence[str] = (),
        *,
        operator: str = "seed",
        note: str = "",
        assignment: Assignment | None = None,
        fidelity: Fidelity = Fidelity.SEARCH,
        feedback: str | None = None,
        status: Status | None = None,
    ) -> Attempt:
        """A judged step; `status` and `feedback` plant another verdict."""
        program, assignment = Program(source), assignment or {}
        verdict = self.evaluator.judge(
            EvaluationRequest(
                task=self.task,
                instance=instance_digest(program.digest, assignment),
                source=render(source, assignment),
                fidelity=fidelity,
            )
        )
        if status is not None:
            verdict = Evaluation(
                status=status,
                stage=verdict.stage,
                fidelity=fidelity,
                task_revision=verdict.task_revision,
                device_class=verdict.device_class,
                evaluator_version=verdict.evaluator_version,
                feedback=feedback or "",
            )
        self._sources[program.digest] = source
        self._evaluations.setdefault(program.digest, []).append(verdict)
        attempt = Attempt(
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
        )
        self.attempts.append(attempt)
        return attempt

    def fail(self, reason: str, parents: Sequence[str] = (), *, operator: str = "edit") -> None:
        """A step of which no program came."""
        self.attempts.append(
            Attempt(
                sequence=len(self.attempts),
                operator=operator,
                parents=tuple(parents),
                failure=reason,
            )
        )

    def pend(self, source: str, *, operator: str = "seed") -> None:
        """A step whose verdict is not there yet."""
        self._sources[Program(source).digest] = source
        program = Program(source).digest
        pending = Attempt(sequence=len(self.attempts), operator=operator, program=program)
        self.attempts.append(pending)

    def elites(self) -> list[Elite]:
        """Every correct program by its best evaluation, best first."""
        best: dict[str, Elite] = {}
        for attempt in self.attempts:
            verdicts = self._evaluations.get(attempt.program or "", ())
            for verdict in verdicts:
                fitness = verdict.fitness("eager")
                if fitness is None or attempt.fidelity is Fidelity.SCREEN:
                    continue
                elite = Elite(
                    program=attempt.program,
                    assignment=attempt.assignment,
                    fitness=fitness,
                    descriptors=verdict.descriptors,
                    sequence=attempt.sequence,
                    operator=attempt.operator,
                    parents=attempt.parents,
                )
                held = best.get(elite.program)
                if held is None or fitness.value > held.fitness.value:
                    best[elite.program] = elite
        return sorted(best.values(), key=lambda elite: (-elite.fitness.value, elite.sequence))

    def context(
        self,
        parents: Sequence[Attempt | Elite] = (),
        *,
        sequence: int | None = None,
        seed: int = 0,
        model: ModelCard | None = None,
        device: Mapping[str, str] | None = None,
    ) -> Context:
        elites = self.elites()
        wanted = [parent.program for parent in parents]
        chosen = [elite for name in wanted for elite in elites if elite.program == name]
        return Context(
            task=self.task,
            parents=tuple(chosen),
            elites=elites,
            facts=self,
            rng=random.Random(seed),
            sequence=len(self.attempts) if sequence is None else sequence,
            device=DEVICE if device is None else device,
            model=model or ModelCard(name="scripted"),
        )

    # Facts

    def source(self, program: str) -> str:
        return self._sources[program]

    def trials(self, program: str) -> Sequence[Trial]:
        return [
            Trial(assignment=a.assignment, fidelity=a.fidelity, status=a.status, ratio=a.ratio)
            for a in self.attempts
            if a.program == program
        ]

    def proposals(self, operator: str) -> int:
        return sum(attempt.operator == operator for attempt in self.attempts)

    def seen(self, instance: str) -> bool:
        return any(
            a.program is not None and instance_digest(a.program, a.assignment) == instance
            for a in self.attempts
        )

    def evaluation(self, program: str) -> Evaluation | None:
        found = self._evaluations.get(program, [])
        return max(found, key=lambda e: e.ratios["eager"].value if e.ratios else -1.0, default=None)

    def recent(
        self, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> Sequence[Attempt]:
        found = [
            attempt
            for attempt in reversed(self.attempts)
            if operator in (None, attempt.operator)
            and (attempt.status or attempt.failure)
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
            for name, exchange in reversed(self.calls)
            if name == operator and exchange.request.purpose == purpose
        ]
        return found[:limit]


def answer(request: ModelRequest, text: str, status: CallStatus = CallStatus.COMPLETED) -> Exchange:
    """A round whose reply is known."""
    return Exchange(request, ModelReply(status=status, text=text))


def request_of(operator: object, context: Context) -> ModelRequest:
    """What the operator asks; a refusal fails the test."""
    asked = operator.propose(context)
    assert isinstance(asked, ModelRequest), asked
    return asked


def prompt_of(request: ModelRequest) -> str:
    """The user's message."""
    (prompt,) = [message.content for message in request.messages if message.role == "user"]
    return prompt


def fenced(source: str) -> str:
    return f"It is faster.\n\n```python\n{source}```\n"


def constants_set(source: str, **values: int) -> str:
    """The source with other values of its constants."""
    for name, value in values.items():
        lines = source.split("\n")
        source = "\n".join(
            f"{name} = {value}" if line.startswith(f"{name} = ") else line for line in lines
        )
    return source
