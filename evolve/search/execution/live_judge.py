"""Programs that a model tries while it answers: steps of the run like all others."""

import asyncio
from collections.abc import Callable, Sequence

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.search.engine import Search
from evolve.search.execution.judging import Told
from evolve.store import Ticket, TicketState


class SearchJudge:
    """`evolve.core.protocols.LiveJudge` of a pipeline.

    Args:
        search: gets the programs as steps.
        take: sends a step where it belongs.
        spent: why nothing more may be judged; empty while it may.
    """

    def __init__(
        self, search: Search, take: Callable[[Ticket], None], spent: Callable[[], str]
    ) -> None:
        self._search = search
        self._take = take
        self._spent = spent
        self._waiting: dict[int, asyncio.Event] = {}

    @property
    def run(self) -> str:
        return self._search.run.name

    @property
    def location(self) -> str:
        return self._search.store.location

    @property
    def task(self) -> Task:
        return self._search.run.task

    def source(self, program: str) -> str:
        return self._search.store.source(program)

    def offer(self, source: str, *, operator: str, parents: Sequence[str], note: str) -> int:
        if spent := self._spent():
            raise UsageError(f"nothing more is judged: {spent}; end here")
        ticket = self._search.offer(source, operator=operator, note=note, parents=parents)
        if ticket.state is not TicketState.PROPOSED:
            raise UsageError(ticket.failure)
        self._waiting[ticket.sequence] = asyncio.Event()
        self._take(ticket)
        return ticket.sequence

    async def judged(self, sequence: int, wait_s: float) -> bool:
        event = self._waiting.get(sequence)
        if event is None:
            return True
        try:
            async with asyncio.timeout(wait_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def awaits(self, ticket: Ticket) -> bool:
        """Whether a model waits for the verdict of this step."""
        return ticket.sequence in self._waiting

    def told(self, told: Told) -> None:
        """A step has its verdict."""
        if event := self._waiting.pop(told.ticket.sequence, None):
            event.set()
