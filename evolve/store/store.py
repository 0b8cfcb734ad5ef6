"""The database of searches: every fact is a row before anything is done with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Evaluation
from evolve.core.program import Assignment
from evolve.core.protocols import Elite, Failed, Offer, Progress, Proposal, Trial
from evolve.core.task import Task


class TicketState(StrEnum):
    ASKED = "asked"
    PROPOSED = "proposed"
    EVALUATED = "evaluated"
    TOLD = "told"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    id: int
    name: str
    task: Task
    config: Mapping[str, Any]
    seed: int
    state: str  # running | finished | interrupted
    reason: str  # why it ended, or ""
    created: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One step of a run. `sequence` counts from 0 within the run and is what users see."""

    id: int
    sequence: int
    state: TicketState
    operator: str
    parents: tuple[str, ...]
    proposal: Proposal | None = None
    failure: str = ""
    evaluation: Evaluation | None = None
    attempts: int = 0


class Store:
    @classmethod
    def open(cls, path: str | Path, *, create: bool = False, read_only: bool = False) -> "Store": ...
    def close(self) -> None: ...

    # runs
    def create_run(self, *, name: str, task: Task, config: Mapping[str, Any], seed: int) -> RunRow: ...
    def run(self, name: str | None = None) -> RunRow: ...  # None: the newest. UsageError lists runs
    def runs(self) -> list[RunRow]: ...
    def claim(self, run: int) -> None: ...  # lease with heartbeat; UsageError when another holds it
    def heartbeat(self, run: int, active_s: float) -> None: ...  # adds active seconds to progress
    def release(self, run: int, state: str, reason: str) -> None: ...
    def progress(self, run: int) -> Progress: ...  # O(1): counters kept in the tell transaction

    # tickets
    def ask(self, run: int, operator: str, parents: Sequence[str]) -> Ticket: ...
    def propose(self, ticket: Ticket, outcome: Proposal | Failed) -> Ticket: ...
    def start_evaluation(self, ticket: Ticket) -> int: ...  # attempts so far, committed before use
    def evaluated(self, ticket: Ticket, evaluation: Evaluation) -> Ticket: ...
    def tell(self, ticket: Ticket, elite: Elite | None, offer: Offer | None) -> None: ...
    def open_tickets(self, run: int) -> list[Ticket]: ...  # not told, in sequence order

    # facts
    def source(self, program: str) -> str: ...
    def trials(self, run: int, program: str) -> Sequence[Trial]: ...
    def proposals(self, run: int, operator: str) -> int: ...
    def seen(self, run: int, instance: str) -> bool: ...
    def cached(self, instance: str, task_revision: str, device_class: str,
               evaluator_version: str, fidelity: str) -> Evaluation | None: ...

    # archive projection
    def slots(self, run: int) -> dict[str, Elite]: ...
    def offers(self, run: int) -> Iterator[tuple[Elite, Offer]]: ...  # every offer, in order, streaming

    # lineage (evolve.core.lineage.Step), streaming, in sequence order
    def steps(self, run: int) -> Iterator["Step"]: ...
    def step(self, run: int, sequence: int) -> "Step": ...
    def ancestors(self, run: int, program: str) -> list["Step"]: ...  # recursive query: the steps that first produced each ancestor
    def evaluation(self, run: int, sequence: int) -> Evaluation | None: ...  # whole, with samples
