"""Workers that say hello, checked, as places of the search's pool."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Any

from evolve.core.devices import kind_of_class
from evolve.core.errors import UsageError
from evolve.evaluation.checked import read_evaluation
from evolve.serve.pull.broker import Broker, Session
from evolve.serve.pull.protocol import EVALUATE
from evolve.worker.service.dispatch.faults import CallFailed, WorkerDied
from evolve.worker.service.dispatch.place import Deadlines, Place
from evolve.worker.service.dispatch.pool import Pool


class RemoteWorker:
    """A worker on another host, as its place in the pool sees it.

    Args:
        broker: hands out calls.
        session: the worker's.
    """

    def __init__(self, broker: Broker, session: Session) -> None:
        self._broker = broker
        self._session = session
        self._killed = ""

    @property
    def alive(self) -> bool:
        return not self._killed

    @property
    def phases(self) -> Mapping[str, str]:
        return self._session.phases

    async def ask(
        self, method: str, params: Mapping[str, Any], deadline_s: float, about: str = ""
    ) -> Any:
        if method == "hello":
            return dict(self._session.facts)
        if self._killed:
            raise WorkerDied(self._killed)
        result = await self._broker.ask(self._session, method, params, deadline_s, about)
        if method == EVALUATE:
            self._require_verdict(result)
        return result

    def kill(self, why: str) -> None:
        self._killed = self._killed or why
        self._broker.abandon(self._session, why)

    async def close(self, close_s: float) -> None:
        """Nothing: the process is its own host's, and hears that the search is over."""

    def _require_verdict(self, result: Any) -> None:
        name, facts = self._session.name, self._session.facts
        try:
            found = read_evaluation(result)
        except ValueError as error:
            raise CallFailed(f"{name}: its answer is no verdict: {error}") from error
        for field, known in (
            ("device_class", found.device_class),
            ("evaluator_version", found.evaluator_version),
        ):
            if known != facts[field]:
                raise CallFailed(f"{name}: its verdict is of {field} {known}, not {facts[field]}")


class Registry:
    """Takes workers into a pool, and out of it.

    Args:
        pool: gets a place for each worker.
        kind: the kind of device that workers have to have.
        lease_s: how long a worker may be silent before its calls are given to others.

    Attributes:
        broker: hands out calls to them.
    """

    def __init__(self, pool: Pool, kind: str, lease_s: float) -> None:
        self.broker = Broker(lease_s, self._dismiss)
        self._pool = pool
        self._kind = kind
        self._places: dict[str, Place] = {}  # by session
        self._entering = asyncio.Lock()

    async def enter(
        self, name: str, instance: str, facts: Mapping[str, Any], holds: Collection[str]
    ) -> Session:
        """The session of a worker that says hello.

        Args:
            name: of the worker, the same after a restart.
            instance: of its process.
            facts: its judge's facts about itself.
            holds: keys of calls that it has the answers of, or will have.

        Raises:
            UsageError: its verdicts cannot be compared with those of the search.
        """
        self._require_kind(name, facts)
        async with self._entering:
            session = self.broker.find(name, instance)
            if session is None:
                session = Session(name, instance, dict(facts))
                self.broker.enter(session)
                place = Place(name, self._start_of(session), Deadlines())
                self._places[session.id] = place
                with ExitStack() as on_failure:
                    on_failure.callback(self.broker.end, session, "it was refused")
                    on_failure.callback(self._places.pop, session.id, None)
                    await self._pool.add(place)
                    on_failure.pop_all()
            session.holds.update(holds)
            return session

    def look(self, session: Session) -> None:
        """See whether the pool has left the worker out, which has to hear of it."""
        place = self._places.get(session.id)
        session.out = place.out if place else ""

    def _start_of(self, session: Session) -> Any:
        async def start() -> RemoteWorker:
            return RemoteWorker(self.broker, session)

        return start

    def _dismiss(self, session: Session, why: str) -> None:
        if place := self._places.pop(session.id, None):
            self._pool.remove(place, why)

    def _require_kind(self, name: str, facts: Mapping[str, Any]) -> None:
        """Raise UsageError for a worker of another kind of device, or other than those here."""
        device_class, version = facts["device_class"], facts["evaluator_version"]
        known = self._pool.hello
        if (kind := kind_of_class(device_class)) != self._kind:
            raise UsageError(
                f"{name} is {device_class}, and this search is for device={self._kind}; start the "
                f"search with device={kind}, or the worker with device={self._kind}"
            )
        if known and device_class != known["device_class"]:
            raise UsageError(
                f"{name} is {device_class}, and this search judges on "
                f"{known['device_class']}: times on them cannot be compared; start workers "
                "on devices of one model"
            )
        if known and version != known["evaluator_version"]:
            raise UsageError(
                f"{name} has judge version {version}, and this search has "
                f"{known['evaluator_version']}: verdicts cannot be compared; install the "
                "same versions of evolve-kernels, Python, torch, Triton and the compiler on all "
                "hosts"
            )
