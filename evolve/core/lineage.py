"""Lineage: the append-only record of how every program came to be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Ratio
from evolve.core.program import Assignment
from evolve.core.protocols import AddStatus

OPPONENT = "baseline"
"""Operator name of tickets that judge the user's own baseline: no part of the search."""

REMEASURE = "remeasure"
"""Operator name of tickets that measure in full a program with a first look only, once it leads."""

VERIFY = "verify"
"""Operator name of tickets that measure a contender again after it has won."""

INJECTED = "injected"
"""Operator name of tickets with a program that a person put into a search under way."""

REFERENCE = "reference"
"""Operator name of tickets that check the reference in a dispatch set: no part of the search."""

NOT_SEARCHED = (OPPONENT, REFERENCE)
"""Operators with tickets that are no part of the search: no archive gets their programs."""

NO_PROPOSALS = (*NOT_SEARCHED, VERIFY)
"""Operators with tickets that propose nothing: no limit on proposals counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One ticket of a run, as reports, resumes and trajectories read it (bounded, no texts).

    `elapsed_s` is the run's active time in seconds when the step was told, over all resumes.
    `method` is whose turn it was, "" if the run has but one. `tuning`: an operator made it that
    tries values of known programs; such a step is no proposal. `usd` is what its calls of models
    were charged, None if a price is unknown. The evaluation took `judged_s` seconds, with waits, at
    the place that `judge` names ("" if that is not known).
    """

    sequence: int
    operator: str
    method: str = ""
    tuning: bool = False
    parents: tuple[str, ...] = ()
    program: str | None = None
    assignment: Assignment = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.SEARCH
    note: str = ""
    failure: str = ""
    status: Status | None = None
    custom: bool | None = None
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    offer: AddStatus | None = None
    slot: str | None = None
    evicted: str | None = None
    device_time_s: float = 0.0
    elapsed_s: float = 0.0
    usd: float | None = 0.0
    judged_s: float = 0.0
    judge: str = ""
