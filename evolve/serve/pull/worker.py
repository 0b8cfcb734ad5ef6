"""One worker that fetches evaluations: its judge is a place of this machine."""

import asyncio
import json
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import evolve
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.serve.pull.client import Gone, SearchClient, TooLarge
from evolve.serve.pull.protocol import EVALUATE, POLLS_PER_LEASE, VERSION, Call, may_be_kept
from evolve.worker.service.dispatch.faults import CallFailed
from evolve.worker.service.dispatch.place import Place

MAX_KEPT = 32  # answers, for a search that comes back and has lost them
LEAVE_S = 2.0


class PutOut(EvaluatorUnavailable):
    """The search gives this worker nothing more; the message says why."""


@dataclass(eq=False)
class UnderWay:
    """A call that the judge is at, and the newest question that asks it."""

    call: Call
    id: str
    abandoned: bool = False


@dataclass
class Counts:
    """A worker's evaluations by status, calls that failed, and seconds with the judge."""

    evaluations: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    busy_s: float = 0.0


class PullWorker:
    """Fetches calls for one judge, and answers them.

    Args:
        client: to the search.
        place: of the judge; started.
        name: of the worker, the same after a restart.
        say: takes a line for people.
    """

    def __init__(
        self, client: SearchClient, place: Place, name: str, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._place = place
        self.name = name
        self.counts = Counts()
        self._say = say
        self._instance = uuid.uuid4().hex
        self._session = ""
        self._lease_s = 0.0
        self._slots = asyncio.Semaphore(place.slots)
        self._under_way: dict[str, UnderWay] = {}  # by key
        self._undelivered: set[str] = set()  # ids of calls with an answer on the way
        self._kept: OrderedDict[str, Any] = OrderedDict()  # answers by key

    @property
    def busy(self) -> int:
        """How many calls the judge is at, or has to come to."""
        return len(self._under_way)

    @property
    def is_connected(self) -> bool:
        """Whether a search knows this worker."""
        return bool(self._session)

    async def run(self) -> None:
        """Serve the search, and the next one at its address, until cancelled.

        Raises:
            UsageError: the search refuses this worker or its token.
            EvaluatorUnavailable: the judge cannot be started again, or the search has left it out.
            NoSearch: there was no search for too long.
        """
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._hello()
                    await self._serve(group)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        finally:
            if self._session:
                told = {"session": self._session, "why": "it was stopped"}
                await self._client.ask_once("/v1/leave", told, LEAVE_S)

    async def _hello(self) -> None:
        told = await self._client.ask(
            "/v1/hello",
            {
                "protocol": VERSION,
                "version": evolve.__version__,
                "name": self.name,
                "instance": self._instance,
                "facts": {**self._place.hello, "slots": self._place.slots},
                "holds": [*self._kept, *self._under_way],
            },
        )
        self._session, self._lease_s = told["session"], told["lease_s"]
        self._say(f"{self.name} takes evaluations from {self._client.url}")

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        """Follow the search until it ends, or does not know this worker any more."""
        while True:
            try:
                told = await self._client.ask(
                    "/v1/poll",
                    {"session": self._session, "has": self._phases()},
                    patience_s=2 * self._lease_s / POLLS_PER_LEASE,
                )
            except Gone:
                self._session = ""
                return
            self._abandon(told.get("abandon", ()))
            for data in told.get("calls", ()):
                self._take(Call.from_json(data), group)
            if told.get("out"):
                raise PutOut(f"{self.name} gets no more evaluations: {told['out']}")
            if told.get("bye"):
                await self._rest()
                return

    async def _rest(self) -> None:
        """Forget a search that has ended: it has stored all that it wanted."""
        self._session = ""
        self._abandon([each.id for each in self._under_way.values()])
        self._kept.clear()
        self._say(f"the search at {self._client.url} has ended; waiting for the next")
        await asyncio.sleep(1.0)  # while it closes

    def _phases(self) -> dict[str, str]:
        at_work = {
            each.id: self._place.phase_of(each.call.about) for each in self._under_way.values()
        }
        return at_work | dict.fromkeys(self._undelivered, "")

    def _take(self, call: Call, group: asyncio.TaskGroup) -> None:
        """Begin with a call, unless its answer is here or under way."""
        if call.id in self._undelivered:
            return
        if call.reuse and call.key in self._kept:
            self._undelivered.add(call.id)
            outcome = {"result": json.dumps(self._kept[call.key])}
            group.create_task(self._deliver(call.id, call.key, outcome))
        elif known := self._under_way.get(call.key):
            known.id = call.id
        else:
            self._under_way[call.key] = one = UnderWay(call, call.id)
            group.create_task(self._judge(one))

    def _abandon(self, ids: Sequence[str]) -> None:
        """End the judge if it is at any of these calls."""
        dropped = [each for each in self._under_way.values() if each.id in ids]
        for each in dropped:
            each.abandoned = True
            del self._under_way[each.call.key]
        if dropped:
            self._place.kill("the search has no use for it any more")

    async def _judge(self, one: UnderWay) -> None:
        call = one.call
        async with self._slots:
            start = time.monotonic()
            outcome = {} if one.abandoned else await self._outcome(call)
            self.counts.busy_s += time.monotonic() - start
        if one.abandoned:
            return
        del self._under_way[call.key]
        self._undelivered.add(one.id)
        await self._deliver(one.id, call.key, outcome)

    async def _outcome(self, call: Call) -> dict[str, Any]:
        try:
            result = await self._place.ask(call.method, call.params, call.deadline_s, call.about)
        except (CallFailed, UsageError) as error:
            self.counts.failures += 1
            return {"error": {"kind": type(error).__name__, "message": str(error)}}
        if call.method == EVALUATE:
            self.counts.evaluations[str(result["status"])] += 1
        if may_be_kept(call.method, result):
            self._kept[call.key] = result
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return {"result": json.dumps(result)}

    async def _deliver(self, id_: str, key: str, outcome: dict[str, Any]) -> None:
        try:
            await self._client.ask("/v1/answer", {"id": id_, "key": key, **outcome})
        except TooLarge as error:
            told = {"kind": CallFailed.__name__, "message": f"the answer is too large: {error}"}
            await self._client.ask("/v1/answer", {"id": id_, "key": key, "error": told})
        finally:
            self._undelivered.discard(id_)
