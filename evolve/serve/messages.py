"""Messages over HTTP: the models that check requests, and that the OpenAPI schema shows."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from evolve.core.evaluation import Fidelity
from evolve.core.protocols import BASELINES
from evolve.serve.jobs import Fault, State
from operators.prompting.replies import MAX_REPLY_CHARS

MAX_TEXT = MAX_REPLY_CHARS  # characters of a module; a reply may be longer, but is not read then
MAX_BATCH = 256

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT)]
# One of those that the server offers; a user's own is called `mine.py:worth@1a2b3c4d`.
RewardName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Message(BaseModel):
    """A request's field that nothing reads is refused, not passed over."""

    model_config = ConfigDict(extra="forbid")


class Pins(Message):
    """The judge that is wanted; with another one the request is refused with 409."""

    evaluator: str | None = Field(default=None, max_length=200, description="Version of the judge")
    device_class: str | None = Field(default=None, max_length=200)


class Submission(Message):
    """One candidate for one task.

    The task is named, or given by the text of its reference; the candidate is a module's text, or a
    model's reply that holds it.
    """

    id: Id | None = Field(
        default=None,
        description="Sending the same submission again under its id does not repeat it",
    )
    task: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None, description="One of `GET /v1/tasks`, or kernelbench:LEVEL/ID"
    )
    reference: Text | None = Field(
        default=None, description="A KernelBench-style module with `Model`"
    )
    source: Text | None = Field(default=None, description="A module with `ModelNew`")
    completion: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="A reply with such a module in a fence"
    )
    size: Literal["tiny", "cpu", "gpu"] | None = None
    precision: Literal["task", "fp32", "fp16", "bf16"] = "task"
    accumulation: Literal["ieee", "tf32", "half"] = "ieee"
    baseline: Literal["eager", *BASELINES] = "eager"  # type: ignore[valid-type]
    fidelity: Literal[Fidelity.CHECK, Fidelity.SCREEN, Fidelity.REWARD] = Fidelity.REWARD
    rewards: list[RewardName] = Field(default=[], max_length=8, description="name@version")
    parent: Id | None = Field(
        default=None,
        description="The job whose candidate this one was made from, for rewards of a gain",
    )
    parent_source: Text | None = Field(
        default=None,
        description="That candidate's module instead, which is then timed beside this one",
    )
    pins: Pins = Pins()
    queue_s: float | None = Field(
        default=None, ge=1, le=86_400, description="Seconds that it may wait in the queue"
    )
    fresh: bool = Field(default=False, description="Judge it even where the verdict is known")

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.task is None) == (self.reference is None):
            raise ValueError("give either task or reference")
        if (self.source is None) == (self.completion is None):
            raise ValueError("give either source or completion")
        if self.parent is not None and self.parent_source is not None:
            raise ValueError("give either parent or parent_source")
        return self


class Batch(Message):
    """Several submissions, which are taken all or none."""

    jobs: Annotated[list[Submission], Field(min_length=1, max_length=MAX_BATCH)]


class Wait(Message):
    """Which jobs to wait for; the answer comes as soon as one of them is over."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_BATCH)]
    wait_s: float = Field(default=20.0, ge=0, le=60)


class TaskAnswer(BaseModel):
    """The judged task; `weak` lists null candidates that pass its check."""

    name: str
    revision: str
    weak: list[dict[str, str]] | None = Field(description="null: not audited")


class VerdictAnswer(BaseModel):
    """The judge's verdict. Ratios and times are `[value, low, high]`, a 95 % interval."""

    status: str
    stage: int = Field(description="The last rung passed, 0 to 7")
    fidelity: str
    correct: bool
    custom: bool | None = Field(description="Whether its own kernels made the outcome")
    strict: bool = Field(description="Correct, custom, and of a task that is not weak")
    suite: bool | None
    speedup: list[float] | None = Field(description="Over the baseline")
    times_ms: dict[str, dict[str, list[float]]] = Field(description="By case and side")
    labels: list[list[str]]
    feedback: str = Field(description="The judge's own words")
    prompt: str = Field(description="Verdict and remarks as the search's prompts tell them")
    next_turn: str = Field(description="A whole message that asks for the next version")
    device_time_s: float


class JobAnswer(BaseModel):
    """Where a job stands, and its verdict once it is done."""

    id: str
    state: State
    fault: Fault | None = Field(description="Why there is no verdict; not the candidate's doing")
    message: str
    task: TaskAnswer
    baseline: str
    verdict: VerdictAnswer | None
    rewards: dict[str, float | None] = Field(description="By name@version; null: unknown")
    evaluator_version: str
    device_class: str
    cached: bool = Field(description="The verdict is that of an earlier job on the same text")
    attempts: int
    queued_s: float
    judged_s: float | None


class JobAnswers(BaseModel):
    """Several of them, in the order that was asked for."""

    jobs: list[JobAnswer]


class ServiceAnswer(BaseModel):
    """The judge's identity and bounds."""

    version: str
    evaluator_version: str
    device_class: str
    sandbox: str
    slots: int
    rewards: list[str]
    references: Literal["known", "any"]
    limits: dict[str, float]


class TasksAnswer(BaseModel):
    """Names that `Submission.task` takes."""

    tasks: list[str]


class HealthAnswer(BaseModel):
    """Whether candidates are being judged."""

    status: Literal["healthy", "unavailable"]
    message: str
    queued: int
    running: int


class Problem(BaseModel):
    """Every failed request: `detail` gives the error, its place and the remedy."""

    detail: Any


_PROBLEMS = {
    401: "The token is missing or wrong",
    403: "Asked by a name that is not this server's",
    404: "No such job; finished ones are kept for a time",
    409: "Pinned to another judge or reward, or an id that stands for another submission",
    413: "The body is too long",
    422: "A field is wrong; the detail says which",
    429: "The queue is full; Retry-After says when to come back",
    503: "The judge or the disk does not answer",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The other responses of an operation, for its schema."""
    return {code: {"model": Problem, "description": _PROBLEMS[code]} for code in (401, 403, *codes)}
