"""The fields of a run's configuration, with types that hold at composition.

Components of `archive`, `selection`, `operators`, `schedule`, `methods`, `knowledge` and `trackers`
are open: a `_target_` may name a class of any package, whose constructor gives the types of
its settings (`evolve.app.config.build`).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING


class OnExists(Enum):
    """The action if the database already holds a run of that name."""

    error = "error"
    resume = "resume"
    new = "new"


class Size(Enum):
    """Which entry of a task's `SIZES` to run; `auto` follows the device."""

    auto = "auto"
    tiny = "tiny"
    cpu = "cpu"
    gpu = "gpu"


class Precision(Enum):
    """The dtype of floating inputs and parameters; `task` leaves them as the task made them."""

    task = "task"
    fp32 = "fp32"
    fp16 = "fp16"
    bf16 = "bf16"


class Accumulation(Enum):
    """The arithmetic that a task allows."""

    ieee = "ieee"
    tf32 = "tf32"
    half = "half"


class Tier(Enum):
    """How strong the sandbox around candidates must at least be."""

    none = "none"
    uid = "uid"
    landlock = "landlock"
    namespaces = "namespaces"


@dataclass
class TaskSettings:
    """How a task is set up; takes part in its revision."""

    size: Size = Size.auto
    precision: Precision = Precision.task
    accumulation: Accumulation = Accumulation.ieee


@dataclass
class Limits:
    """Limits of a run. None: no such limit."""

    evaluations: int | None = None
    proposals: int | None = None
    wall_time: str | None = None
    device_time: str | None = None
    tokens: int | None = None
    usd: float | None = None
    stagnation: int | None = None
    target_speedup: float | None = None
    speed_of_light: float | None = None


@dataclass
class Termination(Limits):
    """The first limit that is reached ends the run; those of `all_of` do so only together."""

    all_of: Limits = field(default_factory=Limits)
    stop_file: str | None = None


@dataclass
class Device:
    """`ids` are GPUs; `run` (whose verdicts) is for replay, the others are for workers."""

    kind: str = MISSING
    ids: list[int] | None = None
    slots: int | None = None
    half_width: float | None = None
    python: str | None = None
    run: str | None = None


class ClusterKind(Enum):
    """Whose devices judge: this machine's, those of a Ray cluster, or of workers that connect."""

    none = "none"
    ray = "ray"
    pull = "pull"


@dataclass
class Cluster:
    """Judges on other machines.

    `address`, `accelerator` and `judges` are for Ray (`evolve.evaluation.cluster`), the others for
    workers that connect (`evolve.serve.pull`).
    """

    kind: ClusterKind = ClusterKind.none
    address: str | None = None
    accelerator: str | None = None
    judges: int | None = None
    listen: str | None = None
    token_file: str | None = None
    lease: str | None = None


class ModelKind(Enum):
    """The source of answers: a model, several, a program, or the recorded answers of a run."""

    single = "single"
    ensemble = "ensemble"
    command = "command"
    replay = "replay"


@dataclass
class ModelPrice:
    """USD per million tokens; None takes LiteLLM's list."""

    prompt: float | None = None
    completion: float | None = None
    cached: float | None = None


@dataclass
class Models:
    """One model by `model`, or several by `models`; `run` (whose answers) is for replay.

    `command` and `environment` are of `evolve.llm.CommandModel`; see `evolve.llm.ModelSettings`
    for the others.
    """

    kind: ModelKind = ModelKind.single
    model: str | None = None
    models: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    run: str | None = None
    command: list[str] | None = None
    environment: list[str] = field(default_factory=list)
    api_base: str | None = None
    key_variable: str | None = None
    price: ModelPrice = field(default_factory=ModelPrice)
    context_tokens: int | None = None
    max_tokens: int = 16384
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    stream: bool = False
    trace: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    deadline_s: float = 1200.0
    slots: int = 8
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


@dataclass
class Sandbox:
    """The confinement of candidates."""

    require: Tier = Tier.none
    read: list[str] = field(default_factory=list)


@dataclass
class Cuda:
    """Compiler options for CUDA C++ besides a program's own."""

    include: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


@dataclass
class Recall:
    """Facts of finished runs in prompts; see `operators.memory.Recall` for the settings."""

    runs: int = 8
    seen: int = 3
    tokens: int = 800


@dataclass
class StoreSettings:
    """Where the database is, and whether a verdict that it holds already is an answer.

    It is at `url`, a PostgreSQL server, if that is given, else in the file at `path`.
    """

    path: str | None = None
    url: str | None = None
    reuse: bool = True


@dataclass
class AgentSettings:
    """A coding agent that answers the operator `agent`, with the limits of an episode."""

    command: str | None = None
    verdicts: int = 8
    deadline: str = "20m"
    usd: float | None = None
    slots: int = 1
    environment: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)


@dataclass
class JudgeConfig:
    """How a judge is started: the settings of servers and of `evolve work`."""

    device: Device = field(default_factory=Device)
    sandbox: Sandbox = field(default_factory=Sandbox)
    cuda: Cuda = field(default_factory=Cuda)


@dataclass
class RunConfig:
    """The root. `evolve run --help` prints it composed."""

    task: str = MISSING
    task_config: TaskSettings = field(default_factory=TaskSettings)
    name: str | None = None
    project: str | None = None
    on_exists: OnExists = OnExists.error
    seed: int = 0
    deterministic: bool = False
    initial: list[str] = field(default_factory=list)
    baseline: str = "eager"
    warm_start: str | None = None
    archive: Any = MISSING
    selection: Any = MISSING
    operators: dict[str, Any] = field(default_factory=dict)
    schedule: Any = MISSING
    llm: Models = field(default_factory=Models)
    agent: AgentSettings = field(default_factory=AgentSettings)
    knowledge: Any = MISSING
    memory: Recall = field(default_factory=Recall)
    methods: dict[str, Any] = field(default_factory=dict)
    trackers: dict[str, Any] = field(default_factory=dict)
    termination: Termination = field(default_factory=Termination)
    device: Device = field(default_factory=Device)
    cluster: Cluster = field(default_factory=Cluster)
    sandbox: Sandbox = field(default_factory=Sandbox)
    cuda: Cuda = field(default_factory=Cuda)
    store: StoreSettings = field(default_factory=StoreSettings)
