"""The store of a search, in which each fact is committed before it is used: a protocol in parts.

`evolve.store` implements it on SQLite and on PostgreSQL; `evolve.testing.stores` tests any
implementation. Digests name programs and instances; `run` is the number of a run, a
ticket's `sequence` its number within the run, from 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from evolve.core.compiled import Compiled
from evolve.core.elites import Elite, Visits
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import Step
from evolve.core.measurement import Interval
from evolve.core.model import Exchange, ModelReply, ModelRequest, ReplyStatus, Reservation
from evolve.core.program import Program
from evolve.core.protocols import Attempt, Failed, Offer, Progress, Proposal, Trial
from evolve.core.records import Arm, Cost, Credit, Judge, Pruned, RunRow, Ticket
from evolve.core.task import Task


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
        """The models that were asked for a program or one of its ancestors in any run."""
        ...


class RunWrites(Protocol):
    """Runs: one process at a time continues one."""

    def create_run(
        self,
        *,
        name: str,
        task: Task,
        config: Mapping[str, Any],
        seed: int,
        steps: Sequence[Ticket] = (),
    ) -> RunRow:
        """Add a run; its fitness is measured against `config["baseline"]` (default `eager`).

        With `steps` of another run (`judged_steps`) it has asked for these already, with their
        numbers, and holds the verdicts, as after a crash: its next process tells them first, in
        this order. They are no part of its budget.
        """
        ...

    def claim(self, run: int) -> None:
        """Become the one process that continues the run, which then counts as running.

        A lease whose heartbeat is older than 30 s, or whose process has died on this machine, is
        taken over.

        Raises:
            UsageError: another process is continuing it.
        """
        ...

    def heartbeat(self, run: int, active_s: float) -> None:
        """Keep the lease (call at least every 10 s), and add active seconds to the run's time.

        From the first one until `release`, every write first sees that nothing else has taken the
        file away or overwritten it.
        """
        ...

    def release(self, run: int, state: str, reason: str) -> None:
        """End the claim. `state` is `finished` or `interrupted`, `reason` a phrase for people."""
        ...

    def reconfigure(self, run: int, config: Mapping[str, Any]) -> None:
        """Describe a claimed run by another configuration from now on."""
        ...

    def record_audit(self, run: int, findings: Sequence[Mapping[str, str]]) -> None:
        """Keep the findings of the task's audit, in a run that was created without one."""
        ...

    def record_compiled(self, run: int, compiled: Sequence[Compiled]) -> None:
        """Keep the compiled reference of the task, in a run that began without."""
        ...


class TicketWrites(Protocol):
    """A ticket's way: asked, replied, proposed, evaluated, told."""

    def ask(self, run: int, operator: str, parents: Sequence[str], *, method: str = "") -> Ticket:
        """Open the next ticket for an operator and the parents (digests) selected for it."""
        ...

    def request(
        self,
        run: int,
        operator: str,
        parents: Sequence[str],
        request: ModelRequest,
        model: str,
        *,
        method: str = "",
    ) -> list[Ticket]:
        """Open a ticket for each sample of an operator's request to a model.

        `model` is the scheduler's pick and no empty text; `request.model` may be another by role.
        """
        ...

    def begin_call(self, ticket: Ticket, worst: Reservation) -> int:
        """Commit a call for a ticket's open request before it is sent; returns the call's id."""
        ...

    def end_call(self, call: int, reply: ModelReply) -> Ticket:
        """Store the result of a call, and charge it; a call that has ended keeps its outcome.

        The ticket is replied then, or still asked if the call was not accepted
        (`CallStatus.UNAVAILABLE`).
        """
        ...

    def recompose(self, ticket: Ticket, parents: Sequence[str], request: ModelRequest) -> Ticket:
        """Ask a ticket's first request, which nothing has answered, in another text.

        The text before is kept, with the parents that it was about; `answer` still takes a reply
        to it.
        """
        ...

    def answer(self, ticket: Ticket, reply: ModelReply, *, key: str = "") -> Ticket:
        """Store a reply obtained elsewhere: a call without a cost beyond the one it states.

        `key` is that of the text which it answers; of the one that stands if left out.
        """
        ...

    def propose(
        self,
        ticket: Ticket,
        outcome: Proposal | Failed | ModelRequest,
        reading: ReplyStatus | None = None,
    ) -> Ticket:
        """Record the operator's proposal, and its reading of a reply.

        A failure (a duplicate is one too) closes the ticket; a request opens its next round.
        """
        ...

    def record(
        self,
        run: int,
        operator: str,
        parents: Sequence[str],
        outcome: Proposal | Failed,
        *,
        method: str = "",
        tuning: bool = False,
    ) -> Ticket:
        """`ask` and `propose` in one transaction, for operators that answer at once.

        A `tuning` is no proposal of the run (`Progress`).
        """
        ...

    def withdraw_evaluation(self, ticket: Ticket) -> None:
        """Take back a `start_evaluation` that was given up for our own reasons (a drain)."""
        ...

    def start_evaluation(self, ticket: Ticket) -> int:
        """Count an attempt before it is made; returns the attempts so far with this one."""
        ...

    def evaluated(self, ticket: Ticket, evaluation: Evaluation) -> Ticket:
        """Record the verdict and count it; a ticket that has one already keeps that one."""
        ...

    def tell(
        self,
        ticket: Ticket,
        elite: Elite | None,
        offer: Offer | None,
        credit: Credit | None = None,
    ) -> None:
        """Close an evaluated ticket with the archive's answer; telling again changes nothing.

        The slots follow from the offer (`evolve.core.protocols.Offer`). `credit` is what this
        ticket brought its `Arm`, or an earlier one by what is known now.
        """
        ...


class Upkeep(Protocol):
    """Care of the database."""

    def size(self) -> dict[str, int]:
        """Bytes on disk by kind."""
        ...

    def backup(self, path: str | Path) -> None:
        """Copy the database to a new file, consistent also while a search is writing."""
        ...

    def prune(self, run: int, *, keep: int | None = None) -> Pruned:
        """Drop raw samples and feedback but of the `keep` best elites (None: all) and ancestors."""
        ...

    def close(self) -> None: ...


class RunStore(
    RunReads,
    TicketReads,
    Recorded,
    ArchiveReads,
    LineageReads,
    RunWrites,
    TicketWrites,
    Upkeep,
    Protocol,
):
    """A database with any number of runs.

    Every method that changes something has committed when it returns. A run is written to by one
    process at a time: `claim` it first. Programs and evaluations are shared between runs.

    Raises:
        UsageError: a database, run or program that is not there or not for us, with the remedy.
        StoreError: the database cannot be read or written, a ticket is not in the state that the
            call needs, or the run was taken over by another process.
    """
