"""From a client's submission to a job of the queue, and why one can be refused."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.evaluation import Fidelity
from evolve.core.model import ReplyStatus
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import EvaluationRequest, Evaluator
from evolve.core.task import Task
from evolve.serve.catalogue import Catalogue, Setup
from evolve.serve.jobs import Job, NewJob
from evolve.serve.messages import Submission
from evolve.trajectories.step import PARENT
from operators.prompting.replies import read_program


class QueueFull(Exception):
    """No further job is taken at present; `retry_after_s` is when there may be room."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class PinMismatch(Exception):
    """A client pinned a judge or a reward that this server has not."""


class SameId(Exception):
    """The id of a submission stands for another one already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSubmission:
    """A submission that can be judged.

    Attributes:
        id: under which its answer is found.
        task: with everything that the judgement depends on.
        source: the candidate; the draft, or nothing, if a reply held no program.
        baseline: of its speedup.
        fidelity: how far up the ladder it goes.
        rewards: names of the rewards to compute.
        parent: id of the job whose candidate it was made from.
        parent_source: that candidate's text instead; empty for none.
        pins: whose verdict is wanted, by `evaluator` and `device_class`.
        queue_s: seconds that it may wait; None for as long as the server lets it.
        fresh: whether it is judged if the verdict is known, too.
        reading: the result of reading the reply for a program.
        note: why it held none.
    """

    id: str
    task: Task
    source: str
    baseline: str = "eager"
    fidelity: Fidelity = Fidelity.REWARD
    rewards: tuple[str, ...] = ()
    parent: str | None = None
    parent_source: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)
    queue_s: float | None = None
    fresh: bool = False
    reading: ReplyStatus = ReplyStatus.PROGRAM
    note: str = ""

    def kept(self) -> dict[str, Any]:
        """The part that the job keeps, as plain data; its task is stored separately."""
        return {
            "task": self.task.name,
            "source": self.source,
            "baseline": self.baseline,
            "fidelity": self.fidelity.value,
            "rewards": list(self.rewards),
            "parent": self.parent,
            "parent_source": self.parent_source,
            "pins": dict(self.pins),
            "fresh": self.fresh,
            "reading": self.reading.value,
            "note": self.note,
        }

    @property
    def digest(self) -> str:
        """Equal for submissions that ask for the same."""
        return framed_digest("order", self.task.revision, canonical_json(self.kept()))

    def key(self, evaluator: Evaluator) -> str:
        """Equal for submissions with the same verdict.

        A reply that could not be read is one thing, the program in it sent by itself another.
        """
        return framed_digest(
            "verdict",
            self.reading.value,
            instance_digest(Program(self.source).digest, {}),
            self.task.revision,
            self.baseline,
            self.parent_source,
            self.fidelity,
            evaluator.device_class,
            evaluator.evaluator_version,
        )

    def job(self, evaluator: Evaluator, most_queue_s: float) -> NewJob:
        return NewJob(
            id=self.id,
            digest=self.digest,
            key=self.key(evaluator),
            revision=self.task.revision,
            request=self.kept(),
            queue_s=min(self.queue_s or most_queue_s, most_queue_s),
        )


def accept(submission: Submission, catalogue: Catalogue) -> AcceptedSubmission:
    """A client's submission with its task found and its program read out of the reply.

    Raises:
        UsageError: the server has no task of that name.
    """
    setup = Setup(submission.size, submission.precision, submission.accumulation)
    if submission.task is not None:
        task = catalogue.find(submission.task, setup)
    else:
        task = catalogue.by_text(submission.reference or "", setup)
    reading, note, source = ReplyStatus.PROGRAM, "", submission.source or ""
    if submission.completion is not None:
        found = read_program(submission.completion)
        reading, note, source = found.status, found.note, found.source
    return AcceptedSubmission(
        id=submission.id or uuid.uuid4().hex,
        task=task,
        source=source,
        baseline=submission.baseline,
        fidelity=submission.fidelity,
        rewards=tuple(dict.fromkeys(submission.rewards)),
        parent=submission.parent,
        parent_source=submission.parent_source or "",
        pins=submission.pins.model_dump(exclude_none=True),
        queue_s=submission.queue_s,
        fresh=submission.fresh,
        reading=reading,
        note=note,
    )


def request_of(task: Task, job: Job) -> EvaluationRequest:
    """The request to the judge; a baseline other than eager is an opponent without a text."""
    source, baseline = job.request["source"], job.request["baseline"]
    opponents = {} if baseline == "eager" else {baseline: ""}
    if parent := job.request["parent_source"]:
        opponents[PARENT] = parent
    return EvaluationRequest(
        task=task,
        instance=instance_digest(Program(source).digest, {}),
        source=source,
        fidelity=Fidelity(job.request["fidelity"]),
        opponents=opponents,
    )


def wrong_pin(pins: Mapping[str, str], evaluator: Evaluator) -> str:
    """Which pins an evaluator does not meet; empty if it meets all."""
    has = {"evaluator": evaluator.evaluator_version, "device_class": evaluator.device_class}
    return "; ".join(
        f"pins.{name} is {wanted}, and this server has {has[name]}"
        for name, wanted in pins.items()
        if wanted != has[name]
    )
