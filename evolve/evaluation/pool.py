"""One queue before the workers of one or several devices."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.evaluation.place import Place
from evolve.evaluation.process import CLOSED, CallFailed, CallOverdue

_REMEMBERED = 4096  # instances, by where they were judged last
MAX_CONSECUTIVE_FAILURES = 3  # instances under which a worker failed, with no answer in between


class Pool:
    """Sends each call to the first place with room; a place that fails and fails is left out.

    A place that has a call's task warm counts as having room for one more.

    A call under which a worker failed is asked once more, alone, and at another place where there
    is one: a candidate that kills workers takes no neighbour with it, one that was only a neighbour
    gets its verdict, and a broken device costs no verdicts while another works.

    Args:
        places: the workers, of one kind of device.
        say: takes a line about a place that is left out.
    """

    def __init__(self, places: Sequence[Place], say: Callable[[str], None]) -> None:
        self.places = tuple(places)
        self._say = say
        self._changed = asyncio.Event()
        self._closed = False
        self._judged_by: OrderedDict[tuple[str, str], Place] = OrderedDict()

    @property
    def in_service(self) -> list[Place]:
        """The places that are not left out."""
        return [place for place in self.places if not place.out]

    async def up(self) -> None:
        """Start all workers.

        Raises:
            EvaluatorUnavailable: one does not come up.
            UsageError: one refuses its options, or they are not of one kind.
        """
        await asyncio.gather(*(place.up() for place in self.places))
        first, *others = self.places
        for other in others:
            if other.hello["device_class"] != first.hello["device_class"]:
                raise UsageError(
                    f"{first.name} is {first.hello['device_class']}, and {other.name} is "
                    f"{other.hello['device_class']}: times on them cannot be compared; name "
                    "devices of one kind in device.ids"
                )

    async def call(
        self, method: str, params: Mapping[str, Any], deadline_s: float, about: str, task: str = ""
    ) -> Any:
        """The result of one call about an instance of a task (its revision).

        An instance that was judged before goes to another place, where one has room: what is
        measured again, or verified, then shows what differs between devices too.

        Raises:
            UsageError: the worker says that it cannot serve the request as it is.
            CallFailed: workers failed under it twice, or one missed the deadline.
            EvaluatorUnavailable: no worker is left, or the pool is closed.
        """
        try:
            async with self.place(task, other_than=self._judged_by.get((task, about))) as place:
                if task:
                    self._remember((task, about), place)
                return await self._ask(place, method, params, deadline_s, about)
        except CallOverdue:
            raise
        except CallFailed:
            pass
        async with self.place(alone=True, other_than=place) as place:
            return await self._ask(place, method, params, deadline_s, about)

    async def close(self) -> None:
        """End all workers; calls under way raise EvaluatorUnavailable."""
        self._closed = True
        self._changed.set()
        await asyncio.gather(*(place.close() for place in self.places))

    @asynccontextmanager
    async def place(
        self, task: str = "", *, alone: bool = False, other_than: Place | None = None
    ) -> AsyncIterator[Place]:
        """A place whose worker is up, for one call.

        Args:
            task: the revision of the task that it is about.
            alone: wait until no other call is there, and keep others out.
            other_than: where not to be, if there is a choice.

        Raises:
            EvaluatorUnavailable: no place is left, or the pool is closed.
        """
        while True:
            waits = (
                self._reserve(other_than)
                if alone
                else self._when(lambda: self._room_for(task, other_than))
            )
            found = await waits
            found.running += 1
            if task and task not in found.tasks:
                found.tasks.append(task)
            try:
                if await self._is_up(found):
                    yield found
                    return
            finally:
                found.running -= 1
                found.reserved = found.reserved and not alone
                self._changed.set()

    def _remember(self, instance: tuple[str, str], place: Place) -> None:
        self._judged_by[instance] = place
        self._judged_by.move_to_end(instance)
        while len(self._judged_by) > _REMEMBERED:
            self._judged_by.popitem(last=False)

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
                raise EvaluatorUnavailable(self._why_none())
            if (found := choose()) is not None:
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
        self._changed.set()  # its slots are known now
        return True

    async def _ask(
        self, place: Place, method: str, params: Mapping[str, Any], deadline_s: float, about: str
    ) -> Any:
        try:
            return await place.ask(method, params, deadline_s, about)
        except CallFailed as failure:
            if len(place.blamed) >= MAX_CONSECUTIVE_FAILURES:
                self._leave_out(
                    place, f"it failed under {MAX_CONSECUTIVE_FAILURES} in a row: {failure}"
                )
            raise

    def _leave_out(self, place: Place, why: str) -> None:
        if place.out:
            return
        place.out = why
        if self.in_service:
            self._say(f"{place.name} gets no more candidates: {why}")
        self._changed.set()

    def _why_none(self) -> str:
        if len(self.places) == 1:
            return self.places[0].out
        return "no device is left: " + "; ".join(f"{each.name}: {each.out}" for each in self.places)
