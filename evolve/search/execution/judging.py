"""The pool of evaluations: keeps the judge's slots, and tells results in the order of asking."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from evolve.core.evaluation import Evaluation, Stage, Status
from evolve.core.measurement import UNREACHABLE_SPEEDUP
from evolve.core.protocols import EvaluationRequest, Evaluator, Offer, Progress
from evolve.search.engine import Search
from evolve.store import Ticket

MAX_ATTEMPTS = 3  # starts of one evaluation before its ticket is closed as our fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One step that was told, as listeners (live display, trackers) get it.

    `began` is when its evaluation began on the clock of `time.monotonic`.
    """

    ticket: Ticket
    evaluation: Evaluation
    offer: Offer | None
    progress: Progress
    began: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An evaluation that is under way; `since` is on the clock of `time.monotonic`."""

    ticket: Ticket
    instance: str
    since: float


class Judging:
    """Evaluations that are under way.

    Args:
        search: whose tickets are evaluated and told.
        evaluator: the judge.
        took: hears how many seconds each evaluation has taken.
    """

    def __init__(
        self,
        search: Search,
        evaluator: Evaluator,
        took: Callable[[float, Evaluation], None] = lambda seconds, evaluation: None,
    ) -> None:
        self._search = search
        self._evaluator = evaluator
        self._took = took
        self._running: dict[asyncio.Task[Evaluation], Ticket] = {}
        self._began: dict[int, UnderWay] = {}

    @property
    def tasks(self) -> Iterable[asyncio.Task[Evaluation]]:
        return self._running.keys()

    @property
    def tickets(self) -> list[Ticket]:
        return list(self._running.values())

    @property
    def under_way(self) -> list[UnderWay]:
        """Evaluations that have begun and not been collected, in the order of their beginning."""
        running = {ticket.sequence for ticket in self.tickets}
        return [each for each in list(self._began.values()) if each.ticket.sequence in running]

    def has_room(self) -> bool:
        return len(self._running) < self._evaluator.slots

    def start(
        self,
        ticket: Ticket,
        opponents: Mapping[str, str] | None = None,
        *,
        is_opening: bool = False,
    ) -> None:
        """Begin with a ticket; how fast it is may stay rough if a verification follows."""
        request = self._search.request(ticket, opponents)
        if is_opening:
            request = replace(request, target_speedups={self._search.baseline: UNREACHABLE_SPEEDUP})
        self._began.pop(ticket.sequence, None)
        self._began[ticket.sequence] = UnderWay(
            ticket=ticket, instance=request.instance, since=time.monotonic()
        )
        task = asyncio.create_task(self._evaluate(ticket, request))
        self._running[task] = ticket

    def collect(self) -> tuple[list[Told], list[BaseException]]:
        """Tell finished evaluations; the second part lists our own failures."""
        ended = sorted(
            (task for task in self._running if task.done()),
            key=lambda task: self._running[task].sequence,
        )
        told, failures = [], []
        for task in ended:
            ticket = self._running.pop(task)
            if error := task.exception():
                failures.append(error)
            else:
                told.append(self._tell(ticket, task.result()))
            self._began.pop(ticket.sequence, None)
        return told, failures

    async def abandon(self) -> None:
        """Cancel running evaluations, but keep finished ones."""
        try:
            self.collect()
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            self._running.clear()

    def withdraw(self) -> None:
        """Store finished evaluations, and undo the starts of the rest, for a process that exits."""
        self.collect()
        for ticket in self._running.values():
            self._search.store.withdraw_evaluation(ticket)

    def _tell(self, ticket: Ticket, evaluation: Evaluation) -> Told:
        offer = self._search.tell(ticket, evaluation)
        return Told(
            ticket=ticket,
            evaluation=evaluation,
            offer=offer,
            progress=self._search.progress,
            began=self._began[ticket.sequence].since,
        )

    async def _evaluate(self, ticket: Ticket, request: EvaluationRequest) -> Evaluation:
        """The verdict; one that failed by our own fault is asked for again, a few times.

        Not if it failed for lack of memory, or others keep the device busy: the judge has tried
        that again by itself, alone.
        """
        known = self._search.known(request, self._evaluator)
        if known is not None:
            return known
        store, device_time_s = self._search.store, 0.0
        evaluation = self._never_finished(request)
        clock = asyncio.get_running_loop().time
        while store.start_evaluation(ticket) <= MAX_ATTEMPTS:
            start = clock()
            try:
                evaluation = await self._evaluator.evaluate(request)
            except asyncio.CancelledError:
                store.withdraw_evaluation(ticket)  # a stop says nothing of the candidate
                raise
            self._took(clock() - start, evaluation)
            device_time_s += evaluation.device_time_s
            if not evaluation.is_worth_another_try:
                break
        return replace(evaluation, device_time_s=device_time_s)

    def _never_finished(self, request: EvaluationRequest) -> Evaluation:
        """The verdict if every earlier session died while it judged this instance."""
        return Evaluation(
            status=Status.INFRA,
            stage=Stage.NONE,
            fidelity=request.fidelity,
            task_revision=request.task.revision,
            device_class=self._evaluator.device_class,
            evaluator_version=self._evaluator.evaluator_version,
            feedback=f"started {MAX_ATTEMPTS} times, and each time the search itself ended",
        )
