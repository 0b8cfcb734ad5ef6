"""Arguments and results of tools: pydantic models; an MCP client is shown their JSON schemas."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

# Words of a configuration that a client may give: no interpolation, no path, no grammar of Hydra.
Name = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,100}$")]
TaskName = Annotated[str, StringConstraints(pattern=r"^[\w.+:/-]{1,200}$")]
Preset = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w{0,60}$")]
Model = Annotated[str, StringConstraints(pattern=r"^[\w.:/@+-]{1,200}$")]
TicketId = Annotated[str, StringConstraints(pattern=r"^[\w.:+-]{1,200}$")]
JobId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
WaitS = Annotated[
    float, Field(ge=0, le=40, description="Seconds to wait for the end, so that a call stays short")
]
Speedup = Annotated[
    list[float] | None,
    Field(description="[value, low, high]: over the baseline, with its 95 % interval"),
]


class TaskList(BaseModel):
    """Names that `task` takes."""

    tasks: list[str] = Field(description="kernelbench:LEVEL/ID is taken too if it is installed")


class TaskText(BaseModel):
    """A task: its reference, and how it is set up here."""

    name: str
    reference: str = Field(description="A module with Model, get_inputs and get_init_inputs")
    size: str
    precision: str
    accumulation: str
    revision: str


class Verdict(BaseModel):
    """Where a ticket stands, and the verdict once `state` is `done`."""

    ticket: str
    state: Literal["asked", "waiting", "judging", "done", "failed"] = Field(
        description="`failed`: there is no verdict, and `message` says why; `asked`: it waits for "
        "`tell`; `waiting`, `judging`: ask again"
    )
    message: str = ""
    status: str = Field(default="", description="`correct`, or the fault")
    correct: bool = False
    strict: bool = Field(
        default=False, description="Correct, by kernels of its own, of a task that is not weak"
    )
    speedup: Speedup = None
    times_ms: dict[str, dict[str, list[float]]] = Field(
        default={}, description="By case and side, each [value, low, high]"
    )
    labels: list[list[str]] = []
    feedback: str = Field(default="", description="Verdict and remarks, as prompts tell them")
    archived: str = Field(default="", description="The answer of the run's archive")
    judge: str = Field(default="", description="Device class and version of the judge")
    verdicts_left: float | None = Field(default=None, description="Of the budget; null: no limit")


class Asked(BaseModel):
    """A step of a run that waits for a reply."""

    ticket: str = Field(description="RUN:STEP, for `tell`")
    key: str = Field(description="Of this text; `tell` takes it back")
    operator: str
    task: str
    parents: list[str] = Field(description="Programs that the prompt builds on")
    prompt: str = Field(description="Task, parents, their verdicts and notes; answer in its form")


class Accepted(BaseModel):
    """What became of a reply or a program that was handed in."""

    ticket: str = Field(description="For `verdict`")
    state: Literal["judging", "done", "asked_again", "failed"] = Field(
        description="`done`: it has a verdict; `asked_again`: `ask` gives one more round; "
        "`failed`: no program came of it, and `message` says why"
    )
    message: str = ""


class RunState(BaseModel):
    """How far a run has come."""

    run: str
    task: str
    state: str = Field(description="`running`, `finished`, or `interrupted` (can be resumed)")
    reason: str
    evaluations: int
    wall_time_s: float
    usd: float | None
    best: Speedup = None
    verified: bool = Field(description="Whether the best was measured again in fresh processes")
    log: list[str] = Field(default=[], description="Last lines of a search of this server")
    budget_left: dict[str, float | None] = Field(
        default={}, description="Of the server; null: no limit; `list_runs` has it once for all"
    )


class Steered(BaseModel):
    """A change of a search, as it was stored."""

    run: str
    stored: str


class Runs(BaseModel):
    """Runs of the database, newest first."""

    runs: list[RunState]
    budget_left: dict[str, float | None] = Field(description="Of the server; null: no limit")


class Best(BaseModel):
    """The best program of a run so far."""

    run: str
    step: int
    speedup: Speedup
    verified: bool
    source: str = Field(description="A module of its own, with a header on where it is from")


class LineageStep(BaseModel):
    """One step, without its texts."""

    step: int
    operator: str
    parents: list[int] = Field(description="Steps that first made the parents")
    program: str | None
    status: str = Field(description="Of the verdict; or `not proposed`, `open`")
    speedup: Speedup
    archived: str
    note: str


class Lineage(BaseModel):
    """Steps of a run, in order."""

    run: str
    steps: list[LineageStep]
    line_to_best: list[int] = Field(description="The best program and its main ancestors")


class StepText(BaseModel):
    """One step with its program and verdict."""

    run: str
    step: int
    operator: str
    source: str | None
    assignment: dict[str, Any] = Field(description="Values of its tunables")
    failure: str
    verdict: Verdict | None


class Document(BaseModel):
    """A document of the knowledge base; `body` only where it was asked for by its id."""

    id: str
    title: str
    tags: dict[str, list[str]]
    tested: str
    body: str | None = None
    sources: list[str] = []


class Documents(BaseModel):
    """Documents, the best fit first."""

    documents: list[Document]
