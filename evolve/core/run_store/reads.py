"""What a store answers, in parts."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from evolve.core.elites import Elite, Visits
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import Step
from evolve.core.measurement import Interval
from evolve.core.model import Exchange, ModelReply, ModelRequest
from evolve.core.program import Program
from evolve.core.protocols import Attempt, Offer, Progress, Trial
from evolve.core.records import (
    Allowance,
    Arm,
    AuditEntry,
    Cost,
    Credit,
    Judge,
    RunRow,
    Ticket,
)
from evolve.core.run_store.steering import SteeringEvent


class RunReads(Protocol):
    """Runs and their state."""

    @property
    def location(self) -> str:
        """The file, or the server's URL without a password, as `--store` takes it."""
        ...

    @property
    def folder(self) -> Path:
        """Folder for files about the runs, such as reports."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """Lines that a person should see once, e.g. that the write-ahead log does not work here."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """One view for all that is read in the block, which must not write; quicker than many."""
        ...

    def run(self, name: str | None = None) -> RunRow:
        """The run of this name, or the newest."""
        ...

    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        ...

    def progress(self, run: int) -> Progress:
        """The run's counters; one row, however long the run is."""
        ...

    def costs(self, run: int | None = None) -> list[Cost]:
        """Spending by run, operator and model; of one run, or of all."""
        ...

    def quotas(self) -> list[Allowance]:
        """All quotas, each with the spending of all its runs."""
        ...

    def allowances(self, user: str, project: str, but: int | None = None) -> list[Allowance]:
        """The quotas of such a run; the spending of run `but` itself is left out."""
        ...

    def audit_log(self, limit: int, run: str | None = None) -> list[AuditEntry]:
        """The newest entries, oldest first: of the run of this name, or all."""
        ...

    def steering(self, run: int, due: int | None = None) -> list[SteeringEvent]:
        """All events in order; with `due` those that the step of this number is still to take."""
        ...

    def steering_counts(self, run: int) -> tuple[int, int]:
        """How many steering events there are, and how many of them the search has taken."""
        ...

    def tokens(self, run: int) -> dict[int, int]:
        """Tokens that the calls of each step were charged, by its sequence number."""
        ...

    def dump(self, run: int, *, canonical: bool = False) -> Iterator[str]:
        """The run as JSON lines; canonical: without fields that a replay changes."""
        ...


class TicketReads(Protocol):
    """Tickets, and their requests to models."""

    def open_tickets(self, run: int) -> list[Ticket]:
        """Tickets that are not told: those with a verdict as it came, then the others as asked."""
        ...

    def ticket(self, run: int, sequence: int) -> Ticket:
        """A step as a ticket, with everything that it asked and was answered."""
        ...

    def is_overtaken(self, ticket: Ticket) -> bool:
        """Whether the run has had verdicts since the ticket's newest request was composed."""
        ...

    def texts(self, ticket: Ticket, round_number: int) -> list[ModelRequest]:
        """All texts in which a round of the ticket was asked, in order."""
        ...

    def pending_calls(self, run: int) -> list[int]:
        """Calls that were committed and have no outcome."""
        ...

    def next_sequence(self, run: int) -> int:
        """The sequence number that the run's next ticket will have."""
        ...

    def exchanges(self, run: int, operator: str, purpose: str, limit: int) -> list[Exchange]:
        """The newest completed calls of an operator for a purpose, newest first."""
        ...

    def requests(self, run: int, operator: str, purpose: str, limit: int) -> list[ModelRequest]:
        """An operator's newest requests for a purpose, newest first, with any outcome or none."""
        ...

    def recorded_reply(self, run: int, key: str, sample: int) -> ModelReply | None:
        """The run's reply to a request by its key and sample number; None if it has none."""
        ...


class Recorded(Protocol):
    """Verdicts and proposals of a run, and statistics of them: bounded, indexed queries."""

    def made_by(self, run: int, operator: str) -> list[int]:
        """The sequence numbers of an operator's tickets, in order."""
        ...

    def recorded(
        self, run: int, instance: str, fidelity: Fidelity, repeat: int = 0
    ) -> Evaluation | None:
        """This run's own evaluation of an instance after `repeat` earlier ones, or the last."""
        ...

    def repeat(self, run: int, sequence: int) -> int:
        """How many earlier tickets asked for the same instance as this one, at its fidelity."""
        ...

    def judge(self, run: int) -> Judge:
        """Device class and evaluator version of the run's evaluations; UsageError without any."""
        ...

    def environment(self, run: int) -> dict[str, str]:
        """The device by the newest evaluation; empty before there is one."""
        ...

    def source(self, program: str) -> str:
        """The text of a program, by digest."""
        ...

    def trials(self, run: int, program: str) -> Sequence[Trial]:
        """Every instance of the program that the run asked for, in order, pending ones too."""
        ...

    def proposals(self, run: int, operator: str) -> int:
        """How many the operator has made in this run, failures and those under way included."""
        ...

    def seen(self, run: int, instance: str) -> bool:
        """Whether this run holds a proposal of the instance (digest) at any fidelity."""
        ...

    def near_duplicate_of(self, run: int, program: Program) -> str | None:
        """Another program of this run that differs in layout, comments or tunable values only."""
        ...

    def standing(self, run: int, ticket: Ticket) -> Elite | None:
        """The elite that a ticket's program makes: its best instance, full evaluations pooled.

        Those of told tickets and of this one, which is about to be told. None if none holds.
        """
        ...

    def credit(self, ticket: Ticket) -> Credit | None:
        """The credit of the ticket that was first to measure the same instance."""
        ...

    def pooled(self, run: int, ticket: Ticket) -> Interval | None:
        """The fitness of an instance with the verdict that a ticket is told; None: refuted."""
        ...

    def attempt_evaluation(self, run: int, program: str) -> Evaluation | None:
        """The run's evaluation of a program's best instance, else its newest, without samples."""
        ...

    def recent(
        self, run: int, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> list[Attempt]:
        """The newest told steps, newest first; see `evolve.core.protocols.Facts`."""
        ...

    def children(self, run: int, program: str, limit: int) -> list[Attempt]:
        """The newest steps that had the program as their main parent, newest first."""
        ...

    def line(self, run: int, program: str, limit: int) -> list[Attempt]:
        """How a program came to be along main parents, oldest first."""
        ...

    def cached(
        self,
        instance: str,
        task_revision: str,
        device_class: str,
        evaluator_version: str,
        fidelity: str,
    ) -> Evaluation | None:
        """The only evaluation with this key, of any run, with its cost then; else None."""
        ...

    def evaluation(self, run: int, sequence: int) -> Evaluation | None:
        """The whole evaluation of a step, with samples; None if it has none (yet)."""
        ...

    def arms(self, run: int) -> list[Arm]:
        """Costs and gains of each method's operators with each model, in told tickets."""
        ...

    def judged_steps(self, run: int, task_revision: str, judge: Judge) -> list[Ticket]:
        """The steps whose verdicts hold for such a judge, in the order of telling.

        Without verifications and the user's own baseline, and without raw samples, which stay
        where they were taken.
        """
        ...


class ArchiveReads(Protocol):
    """The archive's state, its events, and the tree of its programs."""

    def slots(self, run: int) -> dict[str, Elite]:
        """The archive's state, in the order of the slots' names."""
        ...

    def elite(self, run: int, program: str) -> Elite | None:
        """A program as it was offered last, also after it was evicted."""
        ...

    def offers(self, run: int) -> Iterator[tuple[Elite, Offer]]:
        """Every offer in the order of telling, read page by page."""
        ...

    def visits(self, run: int, program: str) -> dict[str, Visits]:
        """The visits of a program, then of its ancestors along main parents."""
        ...

    def held_visits(self, run: int) -> dict[str, Visits]:
        """The visits of every program that the archive holds."""
        ...

    def held_links(self, run: int) -> dict[str, str]:
        """The main parent of every program that the archive holds, and of their ancestors."""
        ...


class LineageReads(Protocol):
    """Steps of a run, and how a program came to be."""

    def steps(self, run: int, *, after: int = -1) -> Iterator[Step]:
        """Every ticket with a higher number than `after`, in sequence order, read page by page."""
        ...

    def step(self, run: int, sequence: int) -> Step: ...

    def ancestors(self, run: int, program: str) -> list[Step]:
        """The steps that first produced each ancestor, the program's own last."""
        ...

    def line_to(self, run: int, program: str) -> list[int]:
        """The steps that made a program and its main ancestors, in order."""
        ...

    def models_behind(self, program: str) -> frozenset[str]:
        """The models that a program or one of its ancestors comes from, in any run."""
        ...
