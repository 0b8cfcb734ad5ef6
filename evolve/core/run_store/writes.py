"""What a store changes, in parts; each has committed when it returns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from evolve.core.compiled import Compiled
from evolve.core.elites import Elite
from evolve.core.evaluation import Evaluation
from evolve.core.model import ModelReply, ModelRequest, ReplyStatus, Reservation
from evolve.core.protocols import Failed, Offer, Proposal
from evolve.core.records import (
    Credit,
    Pruned,
    Quota,
    RunRow,
    Ticket,
)
from evolve.core.run_store.steering import SteeringEvent, SteeringKind
from evolve.core.task import Task


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

    def steer(
        self, run: int, kind: SteeringKind, value: str = "", *, due: int = 0, via: str = ""
    ) -> SteeringEvent:
        """Add an event of this process's user; the process that continues the run takes it.

        `via` names the way by which it came, if the user may have been another person.
        """
        ...

    def take_steering(
        self,
        run: int,
        event: SteeringEvent,
        sequence: int,
        config: Mapping[str, Any] | None = None,
        outcome: Proposal | Failed | None = None,
    ) -> Ticket | None:
        """An event holds from this step of a claimed run on, and with it another configuration.

        Returns:
            The ticket of the event's program, recorded in the same moment with its `outcome`.
        """
        ...

    def record_audit(self, run: int, findings: Sequence[Mapping[str, str]]) -> None:
        """Keep the findings of the task's audit, in a run that was created without one."""
        ...

    def record_reference(self, run: int, cost: Mapping[str, Any]) -> None:
        """Keep the cost of the task's reference, in a run that was created without it."""
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

    def set_quota(self, quota: Quota) -> None:
        """Replace the quota of its account; one without limits takes it away."""
        ...

    def charge(self, project: str, device_time_s: float) -> None:
        """Count device time that this process's user has spent on no run, as a server does."""
        ...

    def log(self, action: str, run: str = "", detail: str = "") -> None:
        """Add an entry of this process's user to the audit log; `create_run` does so itself."""
        ...

    def prune(self, run: int, *, keep: int | None = None) -> Pruned:
        """Drop raw samples and feedback but of the `keep` best elites (None: all) and ancestors."""
        ...

    def close(self) -> None: ...
