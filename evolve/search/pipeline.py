"""The asyncio loop around a `Search`: keeps the judge's slots busy and ends for a stated reason."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evolve.core.errors import EvolveError, UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.lineage import OPPONENT, VERIFY
from evolve.core.program import instance_digest
from evolve.core.protocols import (
    Elite,
    EvaluationRequest,
    Evaluator,
    Offer,
    Progress,
    TerminationRule,
)
from evolve.search.champion import CHAMPION, RUNNER_UP, champion
from evolve.search.engine import Search
from evolve.store import Ticket, TicketState

MAX_ATTEMPTS = 3  # starts of one evaluation before its ticket is closed as our fault
MAX_FAILURES = 50  # recorded failures in a row that end a run
MAX_CONTENDERS = 3  # verified one after the other until one stands
POLL_S = 1.0  # how often rules that depend on time are checked while evaluations run


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One step that was told: what listeners (live display, trackers) get."""

    ticket: Ticket
    evaluation: Evaluation
    offer: Offer | None
    progress: Progress


Listener = Callable[[Told], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pipeline ended. `finished` is False where the run can and should be resumed."""

    reason: str
    finished: bool


class Pipeline:
    """Runs a search to the end of its budget, or until it is told to stop.

    Args:
        search: the engine; its run is claimed for as long as `run` is under way.
        evaluator: the judge.
        termination: when to stop, and why.
        listeners: called after every told step, in order; they must not raise.
        stop_file: the run ends when this file exists.
        drain_s: how long running evaluations may take to finish after `request_stop`; what is
            still running then is evaluated again by a resume.
        verify: whether the champion is verified at the end.
    """

    def __init__(
        self,
        search: Search,
        evaluator: Evaluator,
        termination: TerminationRule,
        *,
        listeners: Iterable[Listener] = (),
        stop_file: Path | None = None,
        drain_s: float = 15.0,
        verify: bool = True,
    ) -> None:
        self._search = search
        self._evaluator = evaluator
        self._termination = termination
        self._listeners = tuple(listeners)
        self._stop_file = stop_file
        self._drain_s = drain_s
        self._verify = verify
        self._stop_reason = ""
        self._stop = asyncio.Event()
        self._running: dict[asyncio.Task[Evaluation], Ticket] = {}
        self._clock = time.monotonic()

    def request_stop(self, reason: str) -> None:
        """Ask for nothing more and end soon; the run stays resumable. Safe from signal handlers."""
        self._stop_reason = self._stop_reason or reason
        self._stop.set()

    async def run(self) -> Outcome:
        """Search until a rule gives its reason, nothing is left to propose, or a stop is asked.

        Raises:
            EvaluatorUnavailable: the judge cannot be used; the run stays resumable.
            UsageError: the task or the user's baseline cannot be judged.
            StoreError: the database cannot be written.
        """
        store, run = self._search.store, self._search.run
        store.claim(run.id)
        self._clock = time.monotonic()
        outcome = Outcome(reason="the process ended", finished=False)
        try:
            outcome = await self._search_and_verify()
        except EvolveError as error:
            outcome = Outcome(reason=str(error), finished=False)
            raise
        finally:
            await self._abandon()
            self._beat()
            store.release(run.id, "finished" if outcome.finished else "interrupted", outcome.reason)
        return outcome

    async def _search_and_verify(self) -> Outcome:
        reason = await self._loop()
        if self._verify and not self._stop.is_set():
            await self._verify_champion()
        if self._stop.is_set():
            await self._drain()
            return Outcome(reason=self._stop_reason, finished=False)
        return Outcome(reason=reason, finished=True)

    async def _loop(self) -> str:
        # What an earlier sitting proposed is paid for, whatever the limits say by now.
        waiting = deque(self._search.open_tickets())
        await self._judge_opponents()
        failures = 0
        while not self._stop.is_set():
            reason = "" if waiting else self._reason()
            while not reason and self._has_slot():
                ticket = waiting.popleft() if waiting else self._search.ask()
                if ticket is None:
                    break
                if ticket.state is TicketState.TOLD:
                    failures += 1
                    if failures == MAX_FAILURES:
                        return f"{failures} proposals in a row failed, the last: {ticket.failure}"
                else:
                    failures = 0
                    self._start(ticket)
                reason = "" if waiting else self._reason()
            if not self._running:
                return reason or "nothing is left to propose"
            await self._wait()
        return self._stop_reason

    def _has_slot(self) -> bool:
        return len(self._running) < self._evaluator.slots

    def _reason(self) -> str:
        """Why to ask for nothing more, counting what is under way as done."""
        pending = [
            ticket.proposal.fidelity
            for ticket in self._running.values()
            if ticket.proposal and ticket.operator not in (VERIFY, OPPONENT)
        ]
        progress = self._search.progress
        reason = self._termination.check(
            replace(
                progress,
                evaluations=progress.evaluations + pending.count(Fidelity.SEARCH),
                screens=progress.screens + pending.count(Fidelity.SCREEN),
                stop_requested=self._stop_file is not None and self._stop_file.exists(),
            )
        )
        return reason or ""

    def _start(self, ticket: Ticket, opponents: Mapping[str, str] | None = None) -> None:
        task = asyncio.create_task(self._evaluate(ticket, opponents or {}))
        self._running[task] = ticket

    async def _wait(self) -> None:
        """Until an evaluation ends, a stop is asked, or time-dependent rules are due."""
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait(
                [*self._running, stop], timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stop.cancel()
        self._beat()
        self._collect()

    def _collect(self) -> None:
        """Tell what has ended, in the order of asking; only then listeners hear of it."""
        ended = sorted(
            (task for task in self._running if task.done()),
            key=lambda task: self._running[task].sequence,
        )
        events: list[Told] = []
        failures = []
        for task in ended:
            ticket = self._running.pop(task)
            if error := task.exception():
                failures.append(error)
            else:
                events.append(self._tell(ticket, task.result()))
        for event in events:
            for listener in self._listeners:
                listener(event)
        if failures:
            raise failures[0]

    def _tell(self, ticket: Ticket, evaluation: Evaluation) -> Told:
        offer = self._search.tell(ticket, evaluation)
        return Told(
            ticket=ticket, evaluation=evaluation, offer=offer, progress=self._search.progress
        )

    async def _evaluate(self, ticket: Ticket, opponents: Mapping[str, str]) -> Evaluation:
        """The verdict; one that failed by our own fault is asked for again, a few times."""
        request = self._search.request(ticket, opponents)
        known = self._search.known(request, self._evaluator)
        if known is not None:
            return known
        store, device_time_s = self._search.store, 0.0
        evaluation = self._never_finished(request)
        while store.start_evaluation(ticket) <= MAX_ATTEMPTS:
            try:
                evaluation = await self._evaluator.evaluate(request)
            except asyncio.CancelledError:
                store.withdraw_evaluation(ticket)  # a stop of ours says nothing of the candidate
                raise
            device_time_s += evaluation.device_time_s
            if evaluation.status is not Status.INFRA:
                break
        return replace(evaluation, device_time_s=device_time_s)

    def _never_finished(self, request: EvaluationRequest) -> Evaluation:
        """The verdict where every earlier sitting died while it judged this instance."""
        return Evaluation(
            status=Status.INFRA,
            stage=Stage.NONE,
            fidelity=request.fidelity,
            task_revision=request.task.revision,
            device_class=self._evaluator.device_class,
            evaluator_version=self._evaluator.evaluator_version,
            feedback=f"started {MAX_ATTEMPTS} times, and each time the search itself ended",
        )

    async def _judge_opponents(self) -> None:
        """Judge a user's baseline like a candidate, once: against a wrong one nothing counts.

        Raises:
            UsageError: it is not correct.
        """
        for ticket in self._search.opponent_tickets():
            await self._run_alone(ticket, {})
        store, run = self._search.store, self._search.run
        for sequence in store.made_by(run.id, OPPONENT):
            verdict = store.evaluation(run.id, sequence)
            if verdict is not None and verdict.status is not Status.CORRECT:
                raise UsageError(
                    f"baseline={store.step(run.id, sequence).note} fails the check itself "
                    f"({verdict.status}): {verdict.feedback}; mend it, or take baseline=eager"
                )

    async def _verify_champion(self) -> None:
        """Let the leader stand a verification, and the next one where it is refuted.

        See `evolve.search.champion` for what follows from the stored results.
        """
        for _ in range(MAX_CONTENDERS):
            reigning = champion(self._search.store, self._search.run)
            contenders = self._search.contenders()
            if not contenders or self._stop.is_set():
                return
            leader = contenders[0]
            if reigning is not None and reigning.verified:
                if reigning.instance == instance_digest(leader.program, leader.assignment):
                    return
                rivals = {CHAMPION: self._search.text(reigning.program, reigning.assignment)}
            else:
                rivals = self._runner_up(leader, contenders[1:])
            verdict = await self._verify_one(leader, rivals)
            if verdict is not None and RUNNER_UP in rivals and _lost(verdict):
                leader_text = self._search.text(leader.program, leader.assignment)
                await self._verify_one(contenders[1], {CHAMPION: leader_text})
            if verdict is not None:
                return

    def _runner_up(self, leader: Elite, others: Sequence[Elite]) -> dict[str, str]:
        """The next best as an opponent, where it could be the better one."""
        if not others or others[0].fitness.high < leader.fitness.low:
            return {}
        return {RUNNER_UP: self._search.text(others[0].program, others[0].assignment)}

    async def _verify_one(self, elite: Elite, opponents: Mapping[str, str]) -> Evaluation | None:
        """The strict verdict on one contender; None where it failed or a stop was asked."""
        ticket = self._search.again(elite, operator=VERIFY, fidelity=Fidelity.VERIFY)
        await self._run_alone(ticket, opponents)
        evaluation = self._search.store.evaluation(self._search.run.id, ticket.sequence)
        return evaluation if evaluation is not None and evaluation.strict else None

    async def _run_alone(self, ticket: Ticket, opponents: Mapping[str, str]) -> None:
        self._start(ticket, opponents)
        while self._running and not self._stop.is_set():
            await self._wait()

    async def _drain(self) -> None:
        """Let running evaluations finish for a while; the rest is asked again by a resume."""
        deadline = time.monotonic() + self._drain_s
        while self._running and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            self._collect()

    async def _abandon(self) -> None:
        """Give up what is still running, but keep what has ended."""
        for task in [task for task in self._running if task.done() and not task.exception()]:
            self._tell(self._running.pop(task), task.result())
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    def _beat(self) -> None:
        now = time.monotonic()
        self._search.store.heartbeat(self._search.run.id, now - self._clock)
        self._clock = now


def _lost(evaluation: Evaluation) -> bool:
    """Whether the runner-up won the duel by a whole interval."""
    duel = evaluation.ratios.get(RUNNER_UP)
    return duel is not None and duel.high < 1.0
