"""One queue before the workers of one or several devices."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.worker.service.dispatch.faults import CLOSED, CallFailed, CallOverdue, PlaceLost
from evolve.worker.service.dispatch.place import Place

_REMEMBERED = 4096  # instances, by where they were judged last
MAX_CONSECUTIVE_FAILURES = 3  # instances under which a worker failed, with no answer in between
MOST_LOST = 3  # places that one call may lose
PATIENCE_S = 5.0  # without any place, before that is said
ALIKE = {  # fields of `hello` that have to be equal at all places
    "device_class": "times on them cannot be compared; name devices of one kind in device.ids",
    "evaluator_version": "their verdicts cannot be compared; install the same versions of "
    "evolve-kernels, Python, torch, Triton and the compiler on both",
}


class Pool:
    """Sends each call to the first place with room; a place that fails and fails is left out.

    A place that has a call's task warm counts as having room for one more. Of the calls that wait,
    one of the task with the fewest under way is next: a search whose candidates take long leaves
    room to the others.

    A call under which a worker failed is asked once more, alone, and at another place where there
    is one: a candidate that kills workers takes no neighbour with it, one that was only a neighbour
    gets its verdict, and a broken device costs no verdicts while another works.

    Places may come and go meanwhile (`add`, `remove`). Calls that were under way at a lost place
    are asked of another; a call that loses two places runs alone at the third, and fails with it.

    Args:
        places: the workers that are there from the start, of one kind of device.
        say: takes a line about a place that is left out or lost.
        missing: a message for the time without any place, if others may come; if empty, calls
            fail then.
    """

    def __init__(
        self, places: Sequence[Place], say: Callable[[str], None], missing: str = ""
    ) -> None:
        self.places = list(places)
        self._known: Place | None = None  # the first that came up
        self._say = say
        self._missing = missing
        self._notice: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self._judged_by: OrderedDict[tuple[str, str], Place] = OrderedDict()
        self._waiting: dict[str, deque[object]] = {}  # by task
        self._under_way: Counter[str] = Counter()

    @property
    def in_service(self) -> list[Place]:
        """The places that are not left out."""
        return [place for place in self.places if not place.out]

    @property
    def hello(self) -> Mapping[str, Any]:
        """A worker's facts about itself; empty before the first start."""
        return self._known.hello if self._known else {}

    async def up(self) -> None:
        """Start all workers.

        Raises:
            EvaluatorUnavailable: one does not come up.
            UsageError: one refuses its options, or they are not of one kind.
        """
        await asyncio.gather(*(place.up() for place in self.places))
        for place in self.places:
            self._require_alike(place)

    async def arrival(self) -> None:
        """Wait until a place is in service."""
        await self._when(lambda: self.in_service[0])

    async def add(self, place: Place) -> None:
        """Start the worker of a place, and take it into service.

        Raises:
            EvaluatorUnavailable: it does not come up, or the pool is closed.
            PlaceLost: it was lost meanwhile.
            UsageError: it is of another kind than those before it.
        """
        await place.up()
        if self._closed:
            await place.close()
            raise EvaluatorUnavailable(CLOSED)
        self._require_alike(place)
        self.places.append(place)
        if self._notice:
            self._notice.cancel()
            self._notice = None
        self._changed.set()

    def remove(self, place: Place, why: str) -> None:
        """Take a lost place out of service; its worker ends the calls under way there."""
        if place in self.places:
            self.places.remove(place)
            self._leave_out(place, why)

    def _require_alike(self, place: Place) -> None:
        """Raise UsageError if times or verdicts of a place cannot be compared with others'."""
        self._known = self._known or place
        for field, remedy in ALIKE.items():
            if (other := place.hello.get(field)) != (known := self.hello.get(field)):
                raise UsageError(
                    f"{self._known.name} is {known}, and {place.name} is {other}: {remedy}"
                )

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        deadline_s: float,
        about: str,
        task: str = "",
        *,
        once: bool = False,
    ) -> Any:
        """The result of one call about an instance of a task (its revision).

        An instance that was judged before goes to another place, where one has room: what is
        measured again, or verified, then shows what differs between devices too.

        Args:
            method: of the worker.
            params: of the method.
            deadline_s: seconds that the worker has for it.
            about: the instance.
            task: the revision of its task.
            once: whether it is the cause if the worker fails: then it is not asked again, and the
                place stays in service.

        Raises:
            UsageError: the worker says that it cannot serve the request as it is.
            CallFailed: workers failed under it twice, or one missed the deadline, or three were
                lost under it.
            EvaluatorUnavailable: no worker is left, or the pool is closed.
        """
        before, failures, losses = self._judged_by.get((task, about)), 0, 0
        while True:
            alone = failures > 0 or losses > 1
            try:
                async with self.place(task, alone=alone, other_than=before) as place:
                    before = place
                    if task:
                        self._remember((task, about), place)
                    try:
                        return await place.ask(method, params, deadline_s, about)
                    finally:
                        if once:
                            place.blamed.pop(about, None)
            except PlaceLost as loss:
                losses += 1
                self.remove(place, str(loss))
                if losses == MOST_LOST:
                    raise CallFailed(f"{MOST_LOST} places were lost under it: {loss}") from loss
            except CallFailed as failure:
                failures += 1
                if once or failures == 2 or isinstance(failure, CallOverdue):
                    raise

    def judged_at(self, about: str, task: str) -> str:
        """Name of the place that an instance of a task was last sent to; empty if none is known."""
        place = self._judged_by.get((task, about))
        return place.name if place else ""

    async def close(self) -> None:
        """End all workers; calls under way raise EvaluatorUnavailable."""
        self._closed = True
        self._changed.set()
        if self._notice:
            self._notice.cancel()
        await asyncio.gather(*(place.close() for place in self.places))

    @asynccontextmanager
    async def place(
        self, task: str = "", *, alone: bool = False, other_than: Place | None = None
    ) -> AsyncIterator[Place]:
        """A place whose worker is up, for one call; too many failures there, and it is left out.

        Args:
            task: the revision of the task that it is about.
            alone: wait until no other call is there, and keep others out.
            other_than: where not to be, if there is a choice.

        Raises:
            EvaluatorUnavailable: no place is left, or the pool is closed.
        """
        while True:
            found = await (self._reserve(other_than) if alone else self._turn(task, other_than))
            found.running += 1
            self._under_way[task] += 1
            if task and task not in found.tasks:
                found.tasks.append(task)
            try:
                if await self._is_up(found):
                    yield found
                    return
            finally:
                found.running -= 1
                self._under_way -= Counter([task])  # keeps no task that has none
                found.reserved = found.reserved and not alone
                if len(found.blamed) >= MAX_CONSECUTIVE_FAILURES:
                    why = list(found.blamed.values())[-1]
                    self._leave_out(found, f"it failed under {len(found.blamed)} in a row: {why}")
                self._changed.set()

    def _remember(self, instance: tuple[str, str], place: Place) -> None:
        self._judged_by[instance] = place
        self._judged_by.move_to_end(instance)
        while len(self._judged_by) > _REMEMBERED:
            self._judged_by.popitem(last=False)

    async def _turn(self, task: str, other_than: Place | None) -> Place:
        """A place with room, when this call is next of those that wait for one."""
        queue, me = self._waiting.setdefault(task, deque()), object()
        queue.append(me)
        try:
            return await self._when(
                lambda: self._room_for(task, other_than) if self._next() is me else None
            )
        finally:
            queue.remove(me)
            del self._waiting[task]
            if queue:  # behind the others: of tasks with as many under way each has its turn
                self._waiting[task] = queue
            self._changed.set()

    def _next(self) -> object:
        """The call that has waited longest, of the task with the fewest under way."""
        return self._waiting[min(self._waiting, key=lambda task: self._under_way[task])][0]

    def _room_for(self, task: str, other_than: Place | None) -> Place | None:
        """Among the places with room, the one with most of it; to know the task is worth a slot."""
        having = [
            place for place in self.in_service if not place.reserved and place.running < place.slots
        ]
        return max(
            having,
            key=lambda place: (
                place is not other_than,
                place.slots - place.running + (task in place.tasks),
            ),
            default=None,
        )

    async def _reserve(self, other_than: Place | None) -> Place:
        """A place that all others have left and none may enter."""

        def unreserved() -> Place | None:
            others = [place for place in self.in_service if place is not other_than]
            return next((place for place in others or self.in_service if not place.reserved), None)

        found = await self._when(unreserved)
        found.reserved = True
        with ExitStack() as on_failure:
            on_failure.callback(self._release, found)
            reserved = await self._when(lambda: None if found.running and not found.out else found)
            on_failure.pop_all()
        return reserved

    def _release(self, place: Place) -> None:
        place.reserved = False
        self._changed.set()

    async def _when(self, choose: Callable[[], Place | None]) -> Place:
        """What `choose` gives, as soon as it gives something."""
        while True:
            if self._closed:
                raise EvaluatorUnavailable(CLOSED)
            if not self.in_service:
                self._none_in_service()
            elif (found := choose()) is not None:
                return found
            self._changed.clear()
            await self._changed.wait()

    async def _is_up(self, place: Place) -> bool:
        """Start the place's worker where none is running; whether it has one now."""
        if place.out:
            return False
        try:
            await place.up()
        except EvaluatorUnavailable as error:
            if self._closed:
                raise
            self._leave_out(place, str(error))
            return False
        except PlaceLost as loss:
            self.remove(place, str(loss))
            return False
        self._known = self._known or place
        self._changed.set()  # its slots are known now
        return True

    def _leave_out(self, place: Place, why: str) -> None:
        if place.out:
            return
        place.out = why
        if self.in_service or self._missing:
            self._say(f"{place.name} gets no more candidates: {why}")
        self._changed.set()

    def _none_in_service(self) -> None:
        """Say after some time that others are waited for; raise if none will come."""
        whys = [f"{place.name}: {place.out}" for place in self.places]
        if not self._missing:
            only = self.places[0].out if len(self.places) == 1 else ""
            raise EvaluatorUnavailable(only or f"no device is left: {'; '.join(whys)}")
        if self._notice is None:
            line = "; ".join(["no judge is in service", *whys, self._missing])
            self._notice = asyncio.get_running_loop().call_later(PATIENCE_S, self._say, line)
