"""What the store hands out: runs and tickets as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evolve.core.evaluation import Evaluation
from evolve.core.protocols import Proposal
from evolve.core.task import Task


class TicketState(StrEnum):
    """How far a ticket has come; each state is a committed row before anything follows from it.

    `ASKED` leads to `PROPOSED` or, where no program could be made, straight to `TOLD`.
    """

    ASKED = "asked"
    PROPOSED = "proposed"
    EVALUATED = "evaluated"
    TOLD = "told"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One search in the database.

    `state` is `running`, `finished` or `interrupted` (a run that was killed still says `running`);
    `reason` says why it ended; `created` is ISO 8601 in UTC.
    """

    id: int
    name: str
    task: Task
    config: Mapping[str, Any]
    seed: int
    state: str
    reason: str
    created: str

    @property
    def baseline(self) -> str:
        """The baseline that this run's fitness is measured against."""
        return str(self.config.get("baseline", "eager"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One step of a run. `sequence` counts from 0 within the run and is what users see.

    `parents` are the programs (digests) that selection picked; those that the operator used are
    in `proposal.parents`.
    """

    id: int
    sequence: int
    state: TicketState
    operator: str
    parents: tuple[str, ...]
    proposal: Proposal | None = None
    failure: str = ""
    evaluation: Evaluation | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `Store.prune` removed: evaluations that lost samples or feedback, and bytes of file."""

    evaluations: int
    bytes: int
