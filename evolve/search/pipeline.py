"""The asyncio loop around a `Search`: keeps the judge's slots busy and ends for a stated reason."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from evolve.core.errors import EvaluatorUnavailable
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.protocols import Elite, Evaluator, Offer, Progress, TerminationRule
from evolve.search.champion import VERIFY, champion
from evolve.search.engine import Search
from evolve.store import Ticket

MAX_ATTEMPTS = 3  # starts of one evaluation before its ticket is closed as our fault
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
        """
        store, run = self._search.store, self._search.run
        store.claim(run.id)
        self._clock = time.monotonic()
        outcome = Outcome(reason="the process ended", finished=False)
        try:
            outcome = await self._search_and_verify()
        except EvaluatorUnavailable as error:
            outcome = Outcome(reason=str(error), finished=False)
            raise
        finally:
            await self._abandon()
            self._beat()
            store.release(run.id, "finished" if outcome.finished else "interrupted", outcome.reason)
        return outcome

    async def _search_and_verify(self) -> Outcome:
        reason = await self._loop()
        if self._stop.is_set():
            await self._drain()
            return Outcome(reason=self._stop_reason, finished=False)
        if self._verify:
            await self._verify_champion()
            if self._stop.is_set():
                return Outcome(reason=self._stop_reason, finished=False)
        return Outcome(reason=reason, finished=True)

    async def _loop(self) -> str:
        waiting = self._search.open_tickets()
        await self._judge_opponents()
        while True:
            reason = self._reason()
            while not reason and not self._stop.is_set() and self._has_slot():
                ticket = waiting.pop(0) if waiting else self._search.ask()
                if ticket is None:
                    break
                self._start(ticket)
                reason = self._reason()
            if not self._running or self._stop.is_set():
                return reason or "nothing is left to propose"
            await self._wait()

    def _has_slot(self) -> bool:
        return len(self._running) < self._evaluator.slots

    def _reason(self) -> str | None:
        """Why to ask for nothing more, counting what is under way as done."""
        pending = [t.proposal.fidelity for t in self._running.values() if t.proposal]
        screens = pending.count(Fidelity.SCREEN)
        progress = self._search.progress
        return self._termination.check(
            replace(
                progress,
                evaluations=progress.evaluations + len(pending) - screens,
                screens=progress.screens + screens,
                stop_requested=self._stop_file is not None and self._stop_file.exists(),
            )
        )

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
        """Tell what has ended, in the order of asking; a failed judge is raised after the rest."""
        ended = sorted(
            (task for task in self._running if task.done()),
            key=lambda task: self._running[task].sequence,
        )
        failures = []
        for task in ended:
            ticket = self._running.pop(task)
            if error := task.exception():
                failures.append(error)
                continue
            evaluation = task.result()
            offer = self._search.tell(ticket, evaluation)
            told = Told(
                ticket=ticket,
                evaluation=evaluation,
                offer=offer,
                progress=self._search.progress,
            )
            for listener in self._listeners:
                listener(told)
        if failures:
            raise failures[0]

    async def _evaluate(self, ticket: Ticket, opponents: Mapping[str, str]) -> Evaluation:
        request = self._search.request(ticket, opponents)
        if request.fidelity is not Fidelity.VERIFY and not opponents:
            known = self._search.known(request, self._evaluator)
            if known is not None:
                return known
        while self._search.store.start_evaluation(ticket) <= MAX_ATTEMPTS:
            evaluation = await self._evaluator.evaluate(request)
            if evaluation.status is not Status.INFRA:
                return evaluation
        return Evaluation(
            status=Status.INFRA,
            stage=Stage.NONE,
            fidelity=request.fidelity,
            task_revision=request.task.revision,
            device_class=self._evaluator.device_class,
            evaluator_version=self._evaluator.evaluator_version,
            feedback=f"Started {MAX_ATTEMPTS} times and never finished; our fault, not scored.",
        )

    async def _judge_opponents(self) -> None:
        """A user's baseline is judged like a candidate, once, so that a wrong one is known."""
        for ticket in self._search.opponent_tickets():
            self._start(ticket)
            while self._running and not self._stop.is_set():
                await self._wait()

    async def _verify_champion(self) -> None:
        """Measure the leader again in fresh processes, beside the runner-up where both could win.

        The winner of many noisy measurements is partly lucky; its headline must not be.
        """
        contenders = self._search.contenders()
        if not contenders or self._already_verified(contenders[0].program):
            return
        leader, *rivals = contenders
        opponents = {"runner_up": self._search.instance_source(rivals[0])} if rivals else {}
        result = await self._verify_one(leader, opponents)
        if rivals and (result is None or _lost(result)):
            await self._verify_one(rivals[0], {})

    async def _verify_one(self, elite: Elite, opponents: dict[str, str]) -> Evaluation | None:
        """The strict verdict on one contender; None where it failed or a stop was asked."""
        ticket = self._search.again(elite, operator=VERIFY, fidelity=Fidelity.VERIFY)
        self._start(ticket, opponents)
        while self._running and not self._stop.is_set():
            await self._wait()
        if self._stop.is_set():
            await self._drain()
        evaluation = self._search.store.evaluation(self._search.run.id, ticket.sequence)
        return evaluation if evaluation is not None and evaluation.strict else None

    def _already_verified(self, program: str) -> bool:
        winner = champion(self._search.store, self._search.run)
        return winner is not None and winner.verified and winner.program == program

    async def _drain(self) -> None:
        """Let running evaluations finish for a while; the rest is asked again by a resume."""
        deadline = time.monotonic() + self._drain_s
        while self._running and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            self._collect()

    async def _abandon(self) -> None:
        for task in self._running:
            task.cancel()
        for task in self._running:
            with suppress(asyncio.CancelledError, EvaluatorUnavailable):
                await task
        self._running.clear()

    def _beat(self) -> None:
        now = time.monotonic()
        self._search.store.heartbeat(self._search.run.id, now - self._clock)
        self._clock = now


def _lost(evaluation: Evaluation) -> bool:
    """Whether the runner-up won the duel by a whole interval."""
    duel = evaluation.ratios.get("runner_up")
    return duel is not None and duel.high < 1.0
