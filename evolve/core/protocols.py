"""The extension points: one narrow protocol each, with its contract in the docstring.

Conformance suites for each ship in `evolve.testing`.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from evolve.core.archive import AddStatus as AddStatus
from evolve.core.archive import Archive as Archive
from evolve.core.archive import Describe as Describe
from evolve.core.archive import Offer as Offer
from evolve.core.archive import described as described
from evolve.core.elites import Elite as Elite
from evolve.core.elites import Population as Population
from evolve.core.elites import Visits as Visits
from evolve.core.elites import best_of as best_of
from evolve.core.elites import rank as rank
from evolve.core.evaluation import Evaluation, Fidelity, Label, Status
from evolve.core.measurement import Ratio
from evolve.core.model import Exchange, ModelCard, ModelRequest, ReplyStatus
from evolve.core.program import Assignment, Program
from evolve.core.recalled import Recalled
from evolve.core.reference import ReferenceCost
from evolve.core.task import Task


class SelectionPolicy(Protocol):
    """Choice of parents. Pure in its arguments: same elites, same generator, same parents.

    Most policies look at the sequence of elites only, and take any `Sequence[Elite]`. One that
    looks at more says so by an attribute `needs`, a frozenset of features of the archive
    (`Archive.offers`): "tree" or "islands".
    """

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        """`count` parents, the main one first.

        Fewer if there are fewer elites, or fewer on the island of a policy that needs islands.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A stored instance of a program: its assignment, and the knowledge of it so far.

    `status` is None while its evaluation is pending; `ratio` is against the fitness baseline.
    """

    assignment: Assignment
    fidelity: Fidelity
    status: Status | None
    ratio: Ratio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One step of the run as prompts describe it.

    `program` is None if none came of it, and `failure` says why. `status` is None while there
    is no verdict. `ratio` is against the fitness baseline. `feedback` is the judge's, at most
    `FEEDBACK_LIMIT` characters of it; the whole is in `Facts.evaluation`.
    """

    sequence: int
    operator: str
    parents: tuple[str, ...] = ()
    program: str | None = None
    assignment: Assignment = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.SEARCH
    note: str = ""
    failure: str = ""
    status: Status | None = None
    custom: bool | None = None
    ratio: Ratio | None = None
    labels: tuple[Label, ...] = ()
    feedback: str = ""


FEEDBACK_LIMIT = 4000
"""Characters of feedback that an `Attempt` carries."""


class Facts(Protocol):
    """Bounded read access to the run's recorded facts, for operators.

    Every method is an indexed query whose cost does not grow with the length of the run; a `limit`
    bounds the number of results.
    """

    def source(self, program: str) -> str:
        """The text of a stored program, by digest."""
        ...

    def trials(self, program: str) -> Sequence[Trial]:
        """Every instance of the program that this run asked for, in order, pending ones too."""
        ...

    def proposals(self, operator: str) -> int:
        """How many proposals the operator has made in this run, or a model is making for it."""
        ...

    def seen(self, instance: str) -> bool:
        """Whether this run holds a proposal of the instance (digest) at any fidelity."""
        ...

    def evaluation(self, program: str) -> Evaluation | None:
        """The program's evaluation in this run: of its best instance, else of its newest.

        Whole, with feedback, cases, labels and descriptors, but without raw samples.
        """
        ...

    def recent(
        self, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> Sequence[Attempt]:
        """The newest told steps, newest first, without tunings, verifications, the user's baseline.

        `failed` narrows to those with no correct program (True) or with one (False). A recorded
        failure to propose is failed; duplicates are left out. Only the last thousand steps count.
        """
        ...

    def children(self, program: str, limit: int) -> Sequence[Attempt]:
        """The newest steps that had this program as their main parent, newest first.

        Pending ones too. The siblings of a program are its main parent's children.
        """
        ...

    def ancestors(self, program: str, limit: int) -> Sequence[Attempt]:
        """How the program came to be along main parents: oldest first, its own step last."""
        ...

    def exchanges(self, operator: str, purpose: str, limit: int) -> Sequence[Exchange]:
        """The newest completed calls of an operator for a purpose, newest first.

        A note that an operator carries over from one step to the next, e.g. a summary.
        """
        ...

    def requests(self, operator: str, purpose: str, limit: int) -> Sequence[ModelRequest]:
        """An operator's newest requests for a purpose, newest first, with any outcome or none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All that an operator may look at.

    Attributes:
        parents: the selection policy's choice, the main parent first.
        elites: all that the archive holds, best first.
        island: of these, those of the main parent's island, which prompts take others from; without
            parents, of the island in turn. None if the archive has no islands: see `peers`.
        rng: the only source of randomness.
        sequence: the number of the ticket.
        tunings: of the tickets up to it that are tunings; `step` leaves them out.
        tunes: whether the run tunes declared constants.
        baseline: the program that fitness and every `Attempt.ratio` are measured against.
        device: facts about the device that judges, e.g. `device_class`, and the names and versions
            of `Evaluation.environment`; empty until it is known. Those from compiled references are
            known from the start, and holds for the task.
        model: answers a request that names no model; None if none can be asked.
        operator: the name that the operator is configured under, which its tickets carry.
        recalled: results of finished runs, as known at the start of the run.
        reference: the cost of the task's reference on the device; None if it is unknown.
        note: of a person who watches the run, for models; empty without one.
    """

    task: Task
    parents: tuple[Elite, ...]
    elites: Sequence[Elite]
    facts: Facts
    rng: random.Random
    sequence: int
    baseline: str = "eager"
    device: Mapping[str, str] = field(default_factory=dict)
    model: ModelCard | None = None
    operator: str = ""
    tunings: int = 0
    tunes: bool = False
    island: Sequence[Elite] | None = None
    recalled: Sequence[Recalled] = ()
    reference: ReferenceCost | None = None
    note: str = ""

    @property
    def peers(self) -> Sequence[Elite]:
        """The elites that the parents may meet, best first: those of their island."""
        return self.elites if self.island is None else self.island

    @property
    def step(self) -> int:
        """The number of the step: the unit of intervals and shares of a run."""
        return self.sequence - self.tunings


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One instance to evaluate.

    `again` evaluates one that the run holds already once more, on purpose: it is no duplicate, and
    no stored verdict answers it.
    """

    program: Program
    assignment: Assignment = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.SEARCH
    parents: tuple[str, ...] = ()
    note: str = ""
    is_reevaluation: bool = False


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing to propose from this context; the engine asks another operator. Not stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure to produce a program that is worth keeping; stored with the ticket.

    `parents` are the programs (digests) that it was to be made from; none for those selected.
    """

    reason: str
    parents: tuple[str, ...] = ()


class Operator(Protocol):
    """How a child is made.

    `propose` is pure and stateless: everything it depends on is in the context, so that a resumed
    search asks as if it had never stopped. It never evaluates. `parents` says how many parents it
    wants; with fewer in the archive it declines, or does without them.
    """

    @property
    def parents(self) -> int: ...

    def propose(self, context: Context) -> Proposal | Declined | Failed | ModelRequest: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """An operator's reading of a reply, in one word, and its consequence.

    A `ModelRequest` asks for one more round: the next step of a plan, or a repair of this reply.
    """

    status: ReplyStatus
    outcome: Proposal | Failed | ModelRequest


MAX_ROUNDS = 4
"""Calls that one ticket may take; the request for a further one is recorded as a failure."""


@runtime_checkable
class SeedOperator(Operator, Protocol):
    """An operator that proposes programs to start from, one after the other.

    If several have an infinite weight they take turns, before all others.
    """

    is_seed: bool


@runtime_checkable
class TuningOperator(Operator, Protocol):
    """An operator that tries values of the declared constants of programs that are known.

    Its tickets are tunings: no proposals, and no steps of the method of search, whose intervals,
    turns and shares leave them out. If they are more than `tuning_share` of the run's tickets,
    it is asked after all other operators, when these have nothing to propose.
    """

    tuning_share: float


@runtime_checkable
class AgentOperator(Operator, Protocol):
    """An operator that asks a coding agent, which has programs judged while it works (`LiveJudge`).

    An agent works for minutes, so it is asked before the starting programs are judged. It sees
    their verdicts while it works.
    """

    is_agent: bool


@runtime_checkable
class ModelOperator(Operator, Protocol):
    """An operator whose `propose` may return a `ModelRequest`.

    It is asked only while a model can be (`Context.model` is never None then).
    """

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """Read the newest reply of a ticket.

        Pure, like `propose`; called only for `COMPLETED` and `TRUNCATED` replies, perhaps by
        another process, much later, and more than once. `context` has the ticket's own parents and
        number, but elites and facts as they are by now; values that must not change after the
        request belong into `ModelRequest.memo`.

        Args:
            context: the readable state of the run.
            exchanges: all rounds of the ticket, oldest first; the last reply is the new one.
        """
        ...


class LiveJudge(Protocol):
    """The judge of a search that is under way, for a model that tries programs while it answers."""

    @property
    def run(self) -> str:
        """Name of the run."""
        ...

    @property
    def location(self) -> str:
        """The database of the run."""
        ...

    @property
    def task(self) -> Task: ...

    def source(self, program: str) -> str:
        """The text of a stored program."""
        ...

    def offer(self, source: str, *, operator: str, parents: Sequence[str], note: str) -> int:
        """Have a program judged as a step of the run; returns its number.

        Raises:
            UsageError: it is none that the judge need see, or the run's budget is used up.
        """
        ...

    async def judged(self, sequence: int, wait_s: float) -> bool:
        """Whether a step is judged, after `wait_s` seconds or as soon as it is."""
        ...


@runtime_checkable
class TriesPrograms(Protocol):
    """A `LanguageModel` that has programs judged while it answers."""

    def judged_by(self, judge: LiveJudge) -> None:
        """From now on the search is under way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Recorded state of a run that termination rules decide on; survives resume.

    `proposals` counts the programs of operators and models; `tunings`, tickets of operators that
    try values of known programs, are none, nor are verifications, nor, for limits, programs to
    start from (`Search`). `evaluations` counts full evaluations, `screens` the cheap ones, of both.
    `best` is the ratio with the highest lower bound among the archive's best, pooled if it was
    measured several times. `evaluations_at_best` is the number of full evaluations when one last
    improved on all before by a disjoint interval. `speed_of_light` is the share that the archive's
    best program reaches, None if unknown. `usd` is None if a price is unknown. `tokens` and `usd`
    hold the charges of calls, unknown outcomes at their reservation; `tokens_reserved` and
    `usd_reserved` the upper bound for running calls. `wall_time_s` includes the start of the
    command. `wall_time_reserved_s` and `device_time_reserved_s` are kept back: for another
    evaluation, and for the verification of the best program. `stop_requested` says why a person
    wants the run to end now; "" if none does.
    """

    proposals: int = 0
    tunings: int = 0
    evaluations: int = 0
    screens: int = 0
    device_time_s: float = 0.0
    device_time_reserved_s: float = 0.0
    wall_time_s: float = 0.0
    wall_time_reserved_s: float = 0.0
    calls: int = 0
    tokens: int = 0
    tokens_reserved: int = 0
    usd: float | None = 0.0
    usd_reserved: float = 0.0
    best: Ratio | None = None
    evaluations_at_best: int = 0
    speed_of_light: float | None = None
    stop_requested: str = ""


class TerminationRule(Protocol):
    """When to stop, and why."""

    def check(self, progress: Progress) -> str | None:
        """The reason to stop now as a phrase, or None to go on."""
        ...

    def wall_time_left_s(self, progress: Progress) -> float:
        """Seconds until a limit on wall time ends the run; infinite if there is none."""
        ...


BASELINES = ("eager_ieee", "eager_tf32", "compile", "compile_max_autotune")
"""Ways to run the reference besides `eager`, to measure against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """One instance for the judge. `source` is the rendered text that will be run.

    `instance` is its digest: the key under which the verdict is stored and answered again.
    `opponents` maps names to rendered sources timed in the same interleaved run, e.g. `elite` or
    `file:mine.py`; `eager` always takes part. One that has the name of one of `BASELINES` needs no
    source: it is the reference. `target_speedups` holds, by opponent or `eager`, the speedup over
    it that the best known program surely has: timing may stop at an interim analysis that shows
    less, and stops at the first if a target is `UNREACHABLE_SPEEDUP`. `repeat` counts
    the earlier evaluations of the same instance at the same fidelity in the same run: recorded and
    synthetic verdicts are distinguished by it.
    """

    task: Task
    instance: str
    source: str
    fidelity: Fidelity = Fidelity.SEARCH
    opponents: Mapping[str, str] = field(default_factory=dict)
    target_speedups: Mapping[str, float] = field(default_factory=dict)
    repeat: int = 0


class Evaluator(Protocol):
    """The judge. Never raises because a kernel is bad.

    Raises:
        EvaluatorUnavailable: the device or the worker cannot be used.
        UsageError: the task itself cannot be judged (does not import, lacks a function, ...).
    """

    @property
    def slots(self) -> int:
        """How many requests may be under way at once."""
        ...

    @property
    def device_class(self) -> str:
        """The kind of the judging device, as in `Evaluation.device_class`."""
        ...

    @property
    def evaluator_version(self) -> str:
        """The evaluator's version, as in `Evaluation.evaluator_version`."""
        ...

    async def evaluate(self, request: EvaluationRequest) -> Evaluation: ...

    async def close(self) -> None: ...
