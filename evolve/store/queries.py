"""Read access to a database of searches."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from evolve.core.elites import Visits
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import Step
from evolve.core.measurement import Interval
from evolve.core.model import Exchange, ModelReply, ModelRequest
from evolve.core.program import Program
from evolve.core.protocols import Attempt, Elite, Offer, Progress, Trial
from evolve.core.records import Allowance, Arm, AuditEntry, Cost, Credit, Judge, RunRow, Ticket
from evolve.core.run_store import ArchiveReads, LineageReads, Recorded, RunReads, TicketReads
from evolve.core.run_store.steering import SteeringEvent
from evolve.store import dump, maintenance
from evolve.store.database.backend import Database, T
from evolve.store.location import folder_of
from evolve.store.tables import (
    ancestry,
    archive,
    arms,
    attempts,
    audit_log,
    calls,
    costs,
    evaluations,
    facts,
    lineage,
    parent_stats,
    program_stats,
    programs,
    quotas,
    requests,
    runs,
    steering,
    stored_tickets,
    warm_start,
)

_SOURCES = 256  # of parents, which are read again for each child; programs never change


class Queries(RunReads, TicketReads, Recorded, ArchiveReads, LineageReads):
    """All that can be read of the runs in a database; `Store` adds the writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: dict[int, int] = {}  # runs that are claimed here, and the thread that did
        self._writes = 0
        self._answers: dict[tuple[object, int, int], Any] = {}
        self._source = lru_cache(maxsize=_SOURCES)(self._read_source)

    @property
    def location(self) -> str:
        return self._database.location

    @property
    def folder(self) -> Path:
        return folder_of(self.location)

    @property
    def notices(self) -> Sequence[str]:
        return tuple(self._database.notices)

    def snapshot(self) -> AbstractContextManager[None]:
        return self._database.snapshot()

    def _kept(self, query: Callable[[Connection, int], T], run: int) -> T:
        """The answer about a run, kept until the next write: only its holder changes the run."""
        if self._held.get(run) != threading.get_ident():
            return self._database.read(query, run)
        key = (query, run, self._writes)
        if key not in self._answers:
            self._answers[key] = self._database.read(query, run)
        answer: T = self._answers[key]
        return answer

    # Runs

    def run(self, name: str | None = None) -> RunRow:
        return self._database.read(runs.find, name)

    def runs(self) -> list[RunRow]:
        return self._database.read(runs.listing)

    def progress(self, run: int) -> Progress:
        return self._kept(runs.progress, run)

    def quotas(self) -> list[Allowance]:
        return self._database.read(quotas.listing)

    def allowances(self, user: str, project: str, but: int | None = None) -> list[Allowance]:
        return self._database.read(quotas.allowances, user, project, but)

    def audit_log(self, limit: int, run: str | None = None) -> list[AuditEntry]:
        return self._database.read(audit_log.newest, limit, run)

    def steering(self, run: int, due: int | None = None) -> list[SteeringEvent]:
        return self._database.read(steering.events, run, due)

    def steering_counts(self, run: int) -> tuple[int, int]:
        return self._database.read(steering.counts, run)

    # Tickets

    def open_tickets(self, run: int) -> list[Ticket]:
        return self._database.read(stored_tickets.still_open, run)

    def ticket(self, run: int, sequence: int) -> Ticket:
        return self._database.read(stored_tickets.at, run, sequence)

    def is_overtaken(self, ticket: Ticket) -> bool:
        return self._database.read(requests.is_overtaken, ticket.id)

    def texts(self, ticket: Ticket, round_number: int) -> list[ModelRequest]:
        return self._database.read(requests.of_round, ticket.id, round_number)

    def pending_calls(self, run: int) -> list[int]:
        return self._database.read(calls.pending, run)

    # Facts

    def next_sequence(self, run: int) -> int:
        return self._database.read(runs.asked, run)

    def made_by(self, run: int, operator: str) -> list[int]:
        return self._database.read(facts.made_by, run, operator)

    def recorded(
        self, run: int, instance: str, fidelity: Fidelity, repeat: int = 0
    ) -> Evaluation | None:
        return self._database.read(facts.recorded, run, instance, fidelity, repeat)

    def repeat(self, run: int, sequence: int) -> int:
        return self._database.read(facts.repeat, run, sequence)

    def judge(self, run: int) -> Judge:
        return self._database.read(facts.judge, run)

    def environment(self, run: int) -> dict[str, str]:
        return self._database.read(facts.environment, run)

    def _read_source(self, program: str) -> str:
        return self._database.read(programs.source, program)

    def source(self, program: str) -> str:
        return self._source(program)

    def trials(self, run: int, program: str) -> Sequence[Trial]:
        return self._database.read(facts.trials, run, program)

    def proposals(self, run: int, operator: str) -> int:
        return self._kept(requests.proposals, run)[operator]

    def seen(self, run: int, instance: str) -> bool:
        return self._database.read(facts.seen, run, instance)

    def near_duplicate_of(self, run: int, program: Program) -> str | None:
        return self._database.read(facts.near_duplicate_of, run, program)

    def standing(self, run: int, ticket: Ticket) -> Elite | None:
        return self._database.read(program_stats.of_program, run, ticket)

    def credit(self, ticket: Ticket) -> Credit | None:
        return self._database.read(arms.credit_of, ticket.id)

    def pooled(self, run: int, ticket: Ticket) -> Interval | None:
        return self._database.read(program_stats.of_instance, run, ticket)

    def visits(self, run: int, program: str) -> dict[str, Visits]:
        return self._database.read(parent_stats.of_line, run, program)

    def held_visits(self, run: int) -> dict[str, Visits]:
        return self._database.read(parent_stats.of_held, run)

    def held_links(self, run: int) -> dict[str, str]:
        return self._database.read(parent_stats.links, run)

    def arms(self, run: int) -> list[Arm]:
        return self._database.read(arms.of_run, run)

    def attempt_evaluation(self, run: int, program: str) -> Evaluation | None:
        return self._database.read(attempts.evaluation_of, run, program)

    def recent(
        self, run: int, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> list[Attempt]:
        return self._database.read(attempts.recent, run, limit, operator, failed)

    def children(self, run: int, program: str, limit: int) -> list[Attempt]:
        return self._database.read(attempts.children, run, program, limit)

    def line(self, run: int, program: str, limit: int) -> list[Attempt]:
        return self._database.read(attempts.ancestors, run, program, limit)

    def exchanges(self, run: int, operator: str, purpose: str, limit: int) -> list[Exchange]:
        return self._database.read(calls.exchanges, run, operator, purpose, limit)

    def requests(self, run: int, operator: str, purpose: str, limit: int) -> list[ModelRequest]:
        return self._database.read(requests.newest, run, operator, purpose, limit)

    def recorded_reply(self, run: int, key: str, sample: int) -> ModelReply | None:
        return self._database.read(calls.recorded, run, key, sample)

    def cached(
        self,
        instance: str,
        task_revision: str,
        device_class: str,
        evaluator_version: str,
        fidelity: str,
    ) -> Evaluation | None:
        return self._database.read(
            evaluations.cached, instance, task_revision, device_class, evaluator_version, fidelity
        )

    # Archive

    def slots(self, run: int) -> dict[str, Elite]:
        return self._database.read(archive.slots, run)

    def elite(self, run: int, program: str) -> Elite | None:
        return self._database.read(archive.elite, run, program)

    def offers(self, run: int) -> Iterator[tuple[Elite, Offer]]:
        return archive.offers(self._database, run)

    # Lineage

    def steps(self, run: int, *, after: int = -1) -> Iterator[Step]:
        return lineage.steps(self._database, run, after)

    def step(self, run: int, sequence: int) -> Step:
        return self._database.read(lineage.step, run, sequence)

    def ancestors(self, run: int, program: str) -> list[Step]:
        return self._database.read(lineage.ancestors, run, program)

    def line_to(self, run: int, program: str) -> list[int]:
        return self._database.read(ancestry.line_to, run, program)

    def models_behind(self, program: str) -> frozenset[str]:
        return self._database.read(ancestry.models_behind, program)

    def judged_steps(self, run: int, task_revision: str, judge: Judge) -> list[Ticket]:
        return self._database.read(warm_start.judged_steps, run, task_revision, judge)

    def evaluation(self, run: int, sequence: int) -> Evaluation | None:
        return self._database.read(lineage.evaluation_of, run, sequence)

    def costs(self, run: int | None = None) -> list[Cost]:
        return self._database.read(costs.everything, run)

    def tokens(self, run: int) -> dict[int, int]:
        return self._database.read(costs.tokens, run)

    # Dump and size

    def dump(self, run: int, *, canonical: bool = False) -> Iterator[str]:
        return dump.lines(self._database, run, canonical=canonical)

    def size(self) -> dict[str, int]:
        texts = self._database.read(maintenance.texts)
        whole = self._database.bytes_on_disk()
        return texts | whole | {"records": whole["records"] - sum(texts.values())}
