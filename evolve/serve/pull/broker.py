"""Calls for workers that fetch them: leases of workers, and the answers that count."""

import asyncio
import itertools
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evolve.core.errors import EvaluatorUnavailable
from evolve.serve.pull.protocol import POLLS_PER_LEASE, Call, key_of
from evolve.worker.service.dispatch.faults import CLOSED, CallOverdue, PlaceLost, WorkerDied

MAX_LOST = 1024  # calls of lost workers, which may still be answered
SLACK_S = 60.0  # behind a call's deadline, which the worker keeps, for the way there and back


@dataclass(eq=False)
class Waiting:
    """A call that has no answer yet.

    Attributes:
        call: the question.
        home: the session that it was asked of; another may have been given it.
        answer: its result, or its failure.
    """

    call: Call
    home: "Session"
    answer: "asyncio.Future[Any]"


@dataclass(eq=False)
class Session:
    """One worker, from its hello to the end of its lease.

    Attributes:
        name: of the worker, the same after a restart.
        instance: of its process.
        facts: its judge's facts about itself.
        id: known to the worker alone.
        calls: that it has or is to fetch, by id.
        holds: keys of the calls of an earlier search that it has the answers of, or will have.
        phases: of the calls under way, by instance.
        has: ids of the calls that it had at its last poll.
        abandoned: calls that it need not go on with.
        out: why it gets nothing more; empty while it does.
        lost: why it is no more; empty while it is.
    """

    name: str
    instance: str
    facts: Mapping[str, Any]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    calls: dict[str, Waiting] = field(default_factory=dict)
    holds: set[str] = field(default_factory=set)
    phases: dict[str, str] = field(default_factory=dict)
    has: frozenset[str] = frozenset()
    abandoned: set[str] = field(default_factory=set)
    out: str = ""
    lost: str = ""
    renewed: float = 0.0
    polls: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Broker:
    """Hands calls out to the sessions of workers, and takes answers.

    Args:
        lease_s: how long a worker may be silent before its calls are given to others.
        dismiss: called with a session that has ended, and the reason.
    """

    def __init__(self, lease_s: float, dismiss: Callable[[Session, str], None]) -> None:
        self.lease_s = lease_s
        self._dismiss = dismiss
        self._sessions: dict[str, Session] = {}
        self._lost: OrderedDict[str, list[Any]] = OrderedDict()  # late answers, by key
        self._epoch = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._closed = False

    def find(self, name: str, instance: str) -> Session | None:
        """The session of this process of a worker, if there is one."""
        same = (s for s in self._sessions.values() if (s.name, s.instance) == (name, instance))
        return next(same, None)

    def enter(self, session: Session) -> None:
        """Begin a session. A worker of its name that was there before was restarted."""
        for other in [s for s in self._sessions.values() if s.name == session.name]:
            self.end(other, "it was started again")
        self.renew(session)
        self._sessions[session.id] = session

    def get(self, session_id: str) -> Session | None:
        """The session of this id; its lease is renewed by that."""
        session = self._sessions.get(session_id)
        if session is not None:
            self.renew(session)
        return session

    def renew(self, session: Session) -> None:
        session.renewed = asyncio.get_running_loop().time()

    def end(self, session: Session, why: str) -> None:
        """End a session; the calls that it has fail with PlaceLost."""
        if self._sessions.pop(session.id, None) is None:
            return
        session.lost = why
        session.changed.set()
        for waiting in list(session.calls.values()):
            if waiting.home is session:
                self._lose(waiting, f"{session.name}: {why}")
            else:
                self._give(waiting, waiting.home, reuse=False)
        session.calls.clear()
        self._dismiss(session, why)

    async def sweep(self) -> None:
        """End sessions with an expired lease, until cancelled."""
        loop, pause_s = asyncio.get_running_loop(), self.lease_s / 10
        while True:
            before = loop.time()
            await asyncio.sleep(pause_s)
            now = loop.time()
            for session in list(self._sessions.values()):
                if now - before > 2 * pause_s + 1.0:  # this process was stopped, not the workers
                    self.renew(session)
                if (silent_s := now - session.renewed) > self.lease_s:
                    self.end(session, f"it was silent for {silent_s:.0f} s")

    async def ask(
        self, home: Session, method: str, params: Mapping[str, Any], deadline_s: float, about: str
    ) -> Any:
        """The answer to a call that a worker is asked.

        Raises:
            PlaceLost: the worker's lease has ended.
            CallFailed: the worker reports a failure, or is given up.
            UsageError: the worker says that it cannot serve the request as it is.
            EvaluatorUnavailable: the broker was closed.
        """
        if self._closed:
            raise EvaluatorUnavailable(CLOSED)
        if home.lost:
            raise PlaceLost(f"{home.name}: {home.lost}")
        call = Call(
            id=f"{self._epoch}-{next(self._numbers)}",
            key=key_of(method, params),
            method=method,
            params=params,
            deadline_s=deadline_s,
            about=about,
        )
        waiting = Waiting(call, home, asyncio.get_running_loop().create_future())
        if late := self._lost.pop(call.key, None):
            return late[0]
        holder = self._holder(home, call.key)
        self._give(waiting, holder or home, reuse=holder is not None)
        try:
            async with asyncio.timeout(deadline_s + SLACK_S):
                return await waiting.answer
        except TimeoutError:
            raise CallOverdue(
                f"{home.name} did not answer '{method}' within {deadline_s:g} s"
            ) from None
        finally:
            self._forget(waiting)

    async def poll(self, session: Session, has: Mapping[str, str]) -> dict[str, Any]:
        """The news for a worker, as soon as there are any.

        Args:
            session: its own.
            has: the phases of the calls that it has, by id.
        """
        session.polls += 1
        turn, found = session.polls, dict[str, Any]()
        session.has = frozenset(has)
        session.changed.set()  # an earlier poll ends, whose answer cannot arrive any more
        abouts = {id_: waiting.call.about for id_, waiting in session.calls.items()}
        session.phases = {abouts[id_]: phase for id_, phase in has.items() if id_ in abouts}
        try:
            async with asyncio.timeout(self.lease_s / POLLS_PER_LEASE):
                while turn == session.polls and not (found := self._news(session, has)):
                    session.changed.clear()
                    await session.changed.wait()
        except TimeoutError:
            pass
        if "bye" in found:
            self._sessions.pop(session.id, None)
        return found

    def answer(self, id_: str, key: str, result: Any, error: Exception | None) -> bool:
        """Take an answer; whether anything has waited for it.

        A result counts for whichever call asks the same, also for one that is about to be asked of
        another worker; a failure counts for the call itself only.
        """
        wanting = [
            waiting
            for session in self._sessions.values()
            for waiting in session.calls.values()
            if not waiting.answer.done()
            and (waiting.call.id == id_ or (error is None and waiting.call.key == key))
        ]
        for waiting in wanting:
            if error is None:
                waiting.answer.set_result(result)
            else:
                waiting.answer.set_exception(error)
        if error is None and not wanting and self._lost.get(key) == []:
            self._lost[key].append(result)
            return True
        return bool(wanting)

    def abandon(self, session: Session, why: str) -> None:
        """Give up the calls of a worker: it ends its judge."""
        session.abandoned |= session.has  # also calls that nothing waits for any more
        for id_, waiting in list(session.calls.items()):
            session.abandoned.add(id_)
            if waiting.home is session:
                _fail(waiting, WorkerDied(why))
        session.changed.set()

    async def close(self, patience_s: float) -> None:
        """Tell all workers that the search is over; calls under way raise EvaluatorUnavailable."""
        self._closed = True
        for session in self._sessions.values():
            session.changed.set()
            for waiting in list(session.calls.values()):
                _fail(waiting, EvaluatorUnavailable(CLOSED))
        ends = asyncio.get_running_loop().time() + patience_s
        while self._sessions and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(0.01)

    def _lose(self, waiting: Waiting, why: str) -> None:
        """Have a call asked of another worker, unless its answer comes before that."""
        if not waiting.answer.done():
            waiting.answer.set_exception(PlaceLost(why))
            self._lost[waiting.call.key] = []
            while len(self._lost) > MAX_LOST:
                self._lost.popitem(last=False)

    def _news(self, session: Session, has: Mapping[str, str]) -> dict[str, Any]:
        """The answer to a poll; empty if there is nothing to tell."""
        told: dict[str, Any] = {}
        new = [w for id_, w in session.calls.items() if id_ not in has and not w.answer.done()]
        if new:
            told["calls"] = [waiting.call.to_json() for waiting in new]
        if abandoned := session.abandoned & has.keys():
            told["abandon"] = sorted(abandoned)
        session.abandoned.clear()
        if session.out:
            told["out"] = session.out
        if self._closed:
            told["bye"] = True
        if session.lost:
            told["lost"] = session.lost
        return told

    def _holder(self, home: Session, key: str) -> Session | None:
        """The session of the worker that has the answer already, or is at it."""
        for session in (home, *self._sessions.values()):
            if key in session.holds:
                session.holds.discard(key)
                return session
        return None

    def _give(self, waiting: Waiting, session: Session, *, reuse: bool) -> None:
        waiting.call = replace(waiting.call, reuse=reuse)
        session.calls[waiting.call.id] = waiting
        session.changed.set()

    def _forget(self, waiting: Waiting) -> None:
        for session in (waiting.home, *self._sessions.values()):
            session.calls.pop(waiting.call.id, None)


def _fail(waiting: Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
