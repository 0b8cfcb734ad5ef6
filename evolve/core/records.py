"""Records of runs, as a store returns them: frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from evolve.core.evaluation import Evaluation
from evolve.core.measurement import Interval
from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Proposal
from evolve.core.task import Task


class TicketState(StrEnum):
    """How far a ticket has come; each state is a committed row before anything follows from it.

    `ASKED` leads to `PROPOSED` or, if no program could be made, straight to `TOLD`. A ticket
    that a model answers is `REPLIED` in between, and `ASKED` again for one more round.
    """

    ASKED = "asked"
    REPLIED = "replied"
    PROPOSED = "proposed"
    EVALUATED = "evaluated"
    TOLD = "told"


class Judge(NamedTuple):
    """The conditions of a verdict: equal ones can be compared, and stand for each other."""

    device_class: str
    evaluator_version: str


LIMITS_AT_START = "limits_at_start"
"""The part of a run's configuration that holds `termination` as it was before people raised it."""

RECORDED = ("audit", "reference", "opening", "recalled", "preset", LIMITS_AT_START)
"""Parts of a run's configuration that are facts, found at its start or later, and no settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One search in the database.

    `state` is `running`, `finished` or `interrupted` (by a kill, too: its process is gone);
    `reason` says why it ended; `created` is ISO 8601 in UTC. `user` and `host` are of the process
    that created it, "" in a run of a version that did not record them; `project` is the setting.
    """

    id: int
    name: str
    task: Task
    config: Mapping[str, Any]
    seed: int
    state: str
    reason: str
    created: str
    user: str = ""
    host: str = ""
    project: str = ""

    @property
    def baseline(self) -> str:
        """The baseline that this run's fitness is measured against."""
        return str(self.config.get("baseline", "eager"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One step of a run. `sequence` counts from 0 within the run and is shown to users.

    `tunings` of the run's tickets up to this one (itself included) are tunings, and `tuning` says
    whether it is one.

    `parents` are the programs (digests) that selection picked; those that the operator used are
    in `proposal.parents`. `method` is whose turn it was, "" where the run has but one. `exchanges`
    are the rounds that a model has answered; `request` is the one that it has not, `sample` counts
    the run's requests that read the same, from 0, and `revision` the texts of this round, of which
    this is the one that stands.
    """

    id: int
    sequence: int
    state: TicketState
    operator: str
    parents: tuple[str, ...]
    model: str = ""
    method: str = ""
    tuning: bool = False
    tunings: int = 0
    exchanges: tuple[Exchange, ...] = ()
    request: ModelRequest | None = None
    sample: int = 0
    revision: int = 0
    proposal: Proposal | None = None
    failure: str = ""
    evaluation: Evaluation | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Pruned:
    """Removed by `Store.prune`: evaluations that lost samples or feedback, and bytes of file."""

    evaluations: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Costs and gains of the told tickets of one operator with one model (`""`: none).

    Those that one method (`""`: the run has but one) asked for. `told` leaves out those whose
    verdict was known before, which says nothing of cost or gain. `usd` is the known cost,
    `unpriced_tokens` the tokens whose cost is unknown. `gain` and `lead` are sums of
    improvements in natural log: how far each child's interval, with all that is known of it by now,
    lies above no gain over its parent, and over the leader, as both were when it was told.
    """

    operator: str
    model: str
    told: int
    tokens: int
    usd: float
    unpriced_tokens: int
    device_time_s: float
    gain: float
    lead: float = 0.0
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What the `Arm` of a told ticket owes to its child: part of `gain` and `lead`.

    `parent` and `leader` are what these were when it was told, in log speedup; 0 without any.
    """

    ticket: int  # its id
    parent: Interval
    leader: Interval
    gain: float = 0.0
    lead: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one operator of one run with one model (`""`: none).

    `tokens` and `usd` are the charges, calls under way at their reservation; `unpriced` calls
    have an unknown cost, which is not in `usd`. `unknown` calls have no outcome and are charged as
    reserved. `prompt_tokens` and `completion_tokens` are as endpoints counted.
    """

    run: str
    operator: str
    model: str
    calls: int
    unknown: int
    unpriced: int
    tokens: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    evaluations: int
    device_time_s: float


class Account(NamedTuple):
    """Whose runs a quota is about: `kind` is `user` or `project`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that all runs of an account may spend together; None: no such limit.

    Runs that were created before `since` (ISO 8601 in UTC, "" for all) do not count.
    """

    account: Account
    usd: float | None = None
    device_time_s: float | None = None
    since: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The spending of runs, with reservations of calls under way; replays spend nothing.

    `usd` is None if a model without a price was asked.
    """

    usd: float | None = 0.0
    device_time_s: float = 0.0


class Allowance(NamedTuple):
    """A quota, and what the runs of its account have spent, all or all but one."""

    quota: Quota
    spent: Spending


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An action of a user. `time` is ISO 8601 in UTC; `run` is a name, "" if it is about none."""

    time: str
    user: str
    host: str
    action: str
    run: str = ""
    detail: str = ""
