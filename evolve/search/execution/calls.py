"""The pool of model calls: committed right before they are sent, stored before they are read."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import CallStatus, LanguageModel, ModelReply, Reservation
from evolve.search.engine import Search, unknown
from evolve.search.execution.llm_concurrency import LLMConcurrency
from evolve.search.termination import format_duration
from evolve.store import Ticket, TicketState

FIRST_PAUSE_S = 5.0  # before an endpoint that is down is asked again; doubles
MAX_PAUSE_S = 300.0

Admit = Callable[[Reservation], str]
"""Why calls that may use so much together must not be sent now; empty if they may."""


@dataclass(slots=True)
class Call:
    """A call that has a slot. It has a number, and is in the accounts, once it is being sent."""

    ticket: Ticket
    worst: Reservation
    number: int | None = None
    sent: float = 0.0  # on the clock of `time.monotonic`


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A call that has ended, as trackers get it.

    `ticket` is the step as it stands with the reply; times are on the clock of `time.monotonic`.
    """

    ticket: Ticket
    reply: ModelReply
    began: float
    ended: float


@dataclass(slots=True)
class Pause:
    """A model that did not accept a call: nothing is asked of it before `until`, then one call."""

    until: float
    length_s: float
    probe: int | None = None  # the ticket that tries whether it answers again


class Calls:
    """Requests that wait to be sent, and calls that are under way.

    Args:
        search: whose tickets are answered and read.
        model: answers requests; None without a model.
        slots: how many calls may be under way at once.
        say: shows a line to the user.
        pace: hears how long calls take, and whether a program came of them.
        heard: gets every call that has ended.
    """

    def __init__(
        self,
        search: Search,
        model: LanguageModel | None,
        slots: int,
        say: Callable[[str], None],
        pace: LLMConcurrency,
        heard: Callable[[Answered], None] = lambda event: None,
    ) -> None:
        self._search = search
        self._model = model
        self._slots = slots
        self._say = say
        self._pace = pace
        self._heard = heard
        self._waiting: deque[Ticket] = deque()
        self._running: dict[asyncio.Task[ModelReply], Call] = {}
        self._pauses: dict[str, Pause] = {}
        self._refused = ""
        self._is_closing = False

    @property
    def tasks(self) -> Iterable[asyncio.Task[ModelReply]]:
        return self._running.keys()

    @property
    def since(self) -> list[float]:
        """When each call under way was sent, on the clock of `time.monotonic`, oldest first."""
        return sorted(call.sent for call in self._running.values() if call.number is not None)

    @property
    def outstanding(self) -> int:
        """Tickets that a reply is still to come for."""
        return len(self._waiting) + len(self._running)

    @property
    def expected(self) -> int:
        """Of these, tickets that are not held up by an endpoint that is down."""
        sendable = sum(_name(ticket) not in self._pauses for ticket in self._waiting)
        return sendable + len(self._running)

    @property
    def wake_s(self) -> float:
        """Seconds until a paused model may be tried; infinite if there is none."""
        now = time.monotonic()
        due = [pause.until for pause in self._pauses.values() if pause.probe is None]
        return max(min(due, default=math.inf) - now, 0.0)

    @property
    def refused(self) -> str:
        """Why waiting calls may not be sent, as far as money and tokens go."""
        return self._refused

    def askable(self) -> list[str]:
        """The models that a new request would be sent to at once."""
        if self._model is None or self._refused or self.expected >= self._slots:
            return []
        running = [call.ticket for call in self._running.values()]
        asked = Counter(_name(ticket) for ticket in (*self._waiting, *running))
        return [
            card.name
            for card in self._model.models
            if card.name not in self._pauses
            and (card.slots is None or asked[card.name] < card.slots)
        ]

    def add(self, ticket: Ticket) -> None:
        """Queue a ticket whose request has no answer.

        A request for a model that is not configured here is left to another process
        (`evolve tell`), or that of a later session.
        """
        if self._model is not None and _name(ticket) in {card.name for card in self._model.models}:
            self._waiting.append(ticket)

    def send(self, admit: Admit) -> None:
        """Start waiting calls, in order, as far as slots, pauses and `admit` allow."""
        self._refused = ""
        if self._model is None:
            return
        kept: deque[Ticket] = deque()
        while self._waiting:
            ticket = self._waiting.popleft()
            if len(self._running) < self._slots and self._may_be_asked(ticket):
                assert ticket.request is not None
                worst = self._model.reserve(ticket.request)
                self._refused = self._refused or admit(self._with_unsent(worst))
                if not self._refused:
                    self._start(ticket, worst, self._model)
                    continue
            kept.append(ticket)
        self._waiting = kept

    def collect(self) -> tuple[list[Ticket], list[BaseException]]:
        """Store and read finished calls, in the order of asking.

        Returns:
            The tickets as they stand then; those that are asked again wait here already. The second
            part lists our own failures.
        """
        ended = sorted(
            (task for task in self._running if task.done()),
            key=lambda task: self._running[task].ticket.sequence,
        )
        tickets, failures = [], []
        for task in ended:
            call = self._running.pop(task)
            if error := task.exception():
                failures.append(error)
                continue
            answered = self._keep(call, task.result())
            self._note(call.ticket, task.result())
            self._tell(call, answered, task.result())
            if answered.request is not None:
                self.add(answered)
                continue
            if answered.state is TicketState.PROPOSED:
                self._pace.proposed()
            tickets.append(answered)
        return tickets, failures

    def _tell(self, call: Call, ticket: Ticket, reply: ModelReply) -> None:
        if call.number is not None:
            ended = call.sent + reply.latency_s
            self._heard(Answered(ticket=ticket, reply=reply, began=call.sent, ended=ended))

    async def settle(self, patience_s: float) -> None:
        """Give running calls so long to end, after another error.

        A refused key is refused to all its users, in a moment: a call that is given up before that
        would be charged as if it had been answered.
        """
        if self._running:
            await asyncio.wait(self._running, timeout=patience_s)

    async def withdraw_unsent(self) -> None:
        """Give up calls that were not sent yet; they are asked again by a resume, at no cost."""
        self._is_closing = True
        unsent = [task for task, call in self._running.items() if call.number is None]
        for task in unsent:
            task.cancel()
        await asyncio.gather(*unsent, return_exceptions=True)
        for task in unsent:
            if task.cancelled():
                del self._running[task]

    async def abandon(self) -> None:
        """Cancel running calls, and keep arrived replies.

        Sent calls then have an unknown outcome; unsent ones are asked again.
        """
        self.collect()
        self._is_closing = True
        for task in self._running:
            task.cancel()
        results = await asyncio.gather(*self._running, return_exceptions=True)
        for call, result in zip(self._running.values(), results, strict=True):
            given_up = unknown("given up when the search was stopped")
            self._keep(call, result if isinstance(result, ModelReply) else given_up)
        self._running.clear()

    def _start(self, ticket: Ticket, worst: Reservation, model: LanguageModel) -> None:
        if pause := self._pauses.get(_name(ticket)):
            pause.probe = ticket.sequence
        call = Call(ticket, worst)
        self._running[asyncio.create_task(self._complete(call, model))] = call

    def _commit(self, call: Call) -> None:
        call.number = self._search.store.begin_call(call.ticket, call.worst)
        call.sent = time.monotonic()

    def _keep(self, call: Call, reply: ModelReply) -> Ticket:
        """Store and read the result of a call; an unsent call is still to be asked."""
        return call.ticket if call.number is None else self._search.replied(call.number, reply)

    def _with_unsent(self, worst: Reservation) -> Reservation:
        """The worst case of a call and of those that have a slot and are not in the accounts."""
        unsent = [call.worst for call in self._running.values() if call.number is None]
        usd = [each.usd for each in (worst, *unsent)]
        return Reservation(
            tokens=sum(each.tokens for each in (worst, *unsent)),
            usd=None if None in usd else sum(each or 0.0 for each in usd),
        )

    async def _complete(self, call: Call, model: LanguageModel) -> ModelReply:
        ticket = call.ticket
        assert ticket.request is not None
        clock = asyncio.get_running_loop().time
        start = clock()
        try:
            commit = partial(self._commit, call)
            reply = await model.complete(ticket.request, ticket.sample, commit)
            self._pace.called(clock() - start)
            return reply
        except ModelUnavailable as error:
            if not self._is_closing:
                self._pause(ticket, error)
            return ModelReply(status=CallStatus.UNAVAILABLE, error=str(error))
        except UsageError as error:  # a person has to mend it: the same request is sent then
            if call.number is not None:
                reply = ModelReply(status=CallStatus.UNAVAILABLE, error=str(error))
                self._search.store.end_call(call.number, reply)
            raise

    def _may_be_asked(self, ticket: Ticket) -> bool:
        """Whether the ticket's model is not paused; after a pause one call tries it first."""
        pause = self._pauses.get(_name(ticket))
        return pause is None or (pause.probe is None and time.monotonic() >= pause.until)

    def _pause(self, ticket: Ticket, error: ModelUnavailable) -> None:
        name, now = _name(ticket), time.monotonic()
        before = self._pauses.get(name)
        if before and before.probe != ticket.sequence:
            return  # it was under way when another call found the endpoint down
        length_s = min(2 * before.length_s, MAX_PAUSE_S) if before else FIRST_PAUSE_S
        wait_s = min(error.retry_after_s or length_s, 3600.0)
        self._pauses[name] = Pause(now + wait_s, length_s)
        again = f"paused, trying again in {format_duration(wait_s)}"
        self._say(f"model {name} cannot be reached: {error}; {again}")

    def _note(self, ticket: Ticket, reply: ModelReply) -> None:
        """An answer of any kind ends the pause of its model."""
        name = _name(ticket)
        if reply.status is not CallStatus.UNAVAILABLE and name in self._pauses:
            del self._pauses[name]
            self._say(f"model {name} answers again")


def _name(ticket: Ticket) -> str:
    assert ticket.request is not None
    return ticket.request.model or ""
