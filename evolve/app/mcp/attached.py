"""A run that a client's calls continue: attached while steps of it wait for their verdicts."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from evolve.app.attach import attach
from evolve.app.database import open_store
from evolve.app.estimate.reference import reference_of
from evolve.app.library.events import EventFrontend
from evolve.app.manual.files import ByHand
from evolve.app.mcp.judging import LazyJudge
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.protocols import Evaluator
from evolve.evaluation import PooledEvaluator
from evolve.search.engine import Search
from evolve.search.execution.judging import Judging
from evolve.store import Ticket

HEARTBEAT_S = 5.0  # a lease lapses after 30 s


class Attached:
    """One run with its search, and the judging of its proposals.

    Args:
        location: the database.
        run: the run's name.
        judge: judges proposals.
        announce: is awaited after verdicts have come.

    Attributes:
        search: of the run; for as long as it is open.
        trouble: why nothing is judged at present; empty while it is.
    """

    def __init__(
        self,
        location: str,
        run: str | None,
        judge: LazyJudge,
        announce: Callable[[], Awaitable[None]],
    ) -> None:
        self._exit = ExitStack()
        self._judge = judge
        self._announce = announce
        self._waiting: dict[int, Ticket] = {}
        self._work: asyncio.Task[None] | None = None
        self.trouble = ""
        with ExitStack() as stack:
            store = stack.enter_context(open_store(location, read_only=False))
            self.search: Search = stack.enter_context(attach(store, store.run(run), model=ByHand()))
            self._exit = stack.pop_all()

    @property
    def is_busy(self) -> bool:
        """Whether steps wait for a verdict here."""
        return bool(self._waiting)

    def judge(self, ticket: Ticket) -> None:
        """Have a proposal judged, in the background."""
        self._waiting[ticket.sequence] = ticket
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._judge_all())

    async def close(self) -> None:
        """Let go of the run; proposals stay stored."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._exit.close()

    async def _judge_all(self) -> None:
        try:
            while self._waiting:
                evaluator = await self._judge.evaluator()
                await self._audit(evaluator)
                await self._judge_with(evaluator)
        except (EvaluatorUnavailable, UsageError) as error:
            self.trouble = str(error)
        finally:
            self._waiting.clear()  # proposals are stored; the next question for one tries again
            await self._announce()

    async def _judge_with(self, evaluator: Evaluator) -> None:
        """Judge with one evaluator, until nothing waits or it does not answer."""
        judging, began = Judging(self.search, evaluator), time.monotonic()
        started: set[int] = set()
        try:
            while self._waiting:
                for sequence, ticket in self._waiting.items():
                    if sequence not in started and judging.has_room():
                        started.add(sequence)
                        judging.start(ticket)
                await asyncio.wait(
                    judging.tasks,
                    timeout=HEARTBEAT_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                told, failures = judging.collect()
                for each in told:
                    self._waiting.pop(each.ticket.sequence, None)
                now = time.monotonic()
                self.search.store.heartbeat(self.search.run.id, now - began)
                began = now
                if told:
                    await self._announce()
                for failure in failures:
                    if not isinstance(failure, EvaluatorUnavailable):
                        raise failure
                    await self._judge.give_up(evaluator, str(failure))
                    return
        finally:
            await judging.abandon()

    async def _audit(self, evaluator: Evaluator) -> None:
        """Keep the audit and costs of the task with a run that was created without a judge."""
        run = self.search.run
        if run.config.get("audit") is None and isinstance(evaluator, PooledEvaluator):
            store = self.search.store
            store.record_audit(run.id, await evaluator.audit(run.task))
            found = await reference_of(run.task, run.config, evaluator, EventFrontend(None))
            if found is not None:
                store.record_reference(run.id, found)
            self.search.reload()
