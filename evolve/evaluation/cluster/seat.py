"""A search's seat at one judge: taken, watched, and given back."""

from collections.abc import Sequence
from typing import Any

import evolve
from evolve.core.errors import UsageError
from evolve.evaluation.cluster.connection import gpus_of
from evolve.evaluation.cluster.remote import RemoteWorker, answer
from evolve.worker.service.dispatch.faults import PlaceLost
from evolve.worker.service.dispatch.place import Deadlines, Place
from evolve.worker.service.dispatch.pool import Pool

LOST_S = 30.0  # without an answer, after which a judge is given up
LEAVE_S = 5.0


class Seat:
    """The relation of a search to one judge, from the start of its actor to its loss.

    Args:
        name: of the judge.
        judge: handle of its actor.
        about: the facts that it has told about itself.
        search: whose seat it is.
    """

    def __init__(self, name: str, judge: Any, about: dict[str, str], search: str) -> None:
        if about["version"] != evolve.__version__:
            raise UsageError(
                f"{name} on {about['host']} has evolve-kernels {about['version']}, and this is "
                f"{evolve.__version__}: install the same version on all nodes"
            )
        self.name = f"{name} on {about['host']}"
        self.searches = 1
        self.place: Place | None = None
        self.is_leaving = False
        self._judge = judge
        self._about = about
        self._search = search
        self._worker: RemoteWorker | None = None

    @property
    def is_held(self) -> bool:
        """Whether a worker is there for this search, or is being started."""
        return self.place is not None and not self.is_leaving

    async def beat(self) -> None:
        """Say that the search is alive, and read the phases of its calls; raises PlaceLost."""
        news = await answer(self._judge.beat.remote(self._search), LOST_S, bare=True)
        self.searches = news["searches"]
        if self._worker is not None:
            self._worker.phases = news["phases"]

    async def take(
        self,
        pool: Pool,
        words: Sequence[str],
        python: str | None,
        deadlines: Deadlines,
        slots: int | None,
    ) -> None:
        """Start a worker there, and take it into service.

        Raises:
            PlaceLost: all seats are taken, or the judge has gone.
            EvaluatorUnavailable: the worker does not come up.
            UsageError: it refuses its options, or cannot be compared with the others.
        """
        if gpu := self._about["gpu"]:
            words = [*words, "--share", f"{gpu}/{gpus_of(self._about['node'])}"]

        async def start() -> RemoteWorker:
            self._worker = await RemoteWorker.start(self._judge, self._search, words, python)
            return self._worker

        self.place = Place(self.name, start, deadlines, slots)
        await pool.add(self.place)

    def lose(self, pool: Pool, why: str) -> None:
        """The judge has gone; calls under way there raise PlaceLost."""
        if self.place is not None:
            pool.remove(self.place, why)
        if self._worker is not None:
            self._worker.lose(why)
        self.place = self._worker = None

    async def give_back(self, pool: Pool, why: str) -> None:
        """Leave the seat to another search, after the calls under way there."""
        if self.place is None:
            return
        self.is_leaving = True
        pool.remove(self.place, why)
        if not self.place.running:
            await self.place.close()
            await self.leave(forget=False)
            self.place, self.is_leaving = None, False

    async def leave(self, *, forget: bool) -> None:
        """Give the seat to others; the search has ended there if the judge is to `forget` it."""
        try:
            await answer(self._judge.leave.remote(self._search, forget=forget), LEAVE_S, bare=True)
        except PlaceLost:
            return
