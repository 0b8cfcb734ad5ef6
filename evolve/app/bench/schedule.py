"""Which of a bench's tasks come first, how many at once, and how long their verdicts take."""

import asyncio
import math
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from evolve.app.bench.plan import Entry
from evolve.core.evaluation import Fidelity, Status, stages_s
from evolve.core.lineage import VERIFY
from evolve.core.run_store import RunStore

_RECENT = 16


def begun_first(entries: Sequence[Entry], store: RunStore) -> list[Entry]:
    """Tasks that are nearest to their end come first; those without a run keep their order."""
    runs = {run.name: run for run in store.runs()}

    def evaluations(entry: Entry) -> float:
        run = runs.get(entry.task.run)
        if run is None:
            return -1.0
        return math.inf if run.state == "finished" else store.progress(run.id).evaluations

    return sorted(entries, key=evaluations, reverse=True)


def searches_at_once(slots: int) -> int:
    """Few, so that those begun end soon; not so few that slots wait while a task is made ready."""
    return min(slots, max(2, (slots + 1) // 3))


class Slots:
    """The judge's slots, divided between searches and finals so that none idles.

    Finals have most of them while searches are left, and all of them afterwards.

    Args:
        slots: of the judge.
        searches: how many are to come.
    """

    def __init__(self, slots: int, searches: int) -> None:
        self.of_finals = 0  # one for each evaluation of a final that is under way
        self._slots = slots
        self._searches_left = searches
        self._searching = asyncio.Semaphore(searches_at_once(slots))
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def search(self) -> AsyncIterator[None]:
        """A turn for a search, in the order of asking, as soon as finals leave a slot to it."""
        try:
            async with self._searching:
                async with self._changed:
                    await self._changed.wait_for(lambda: self.of_finals < self._slots)
                yield
        finally:
            self._searches_left -= 1
            await self._tell()

    @asynccontextmanager
    async def final(self, evaluations: int) -> AsyncIterator[int]:
        """Slots for a final: one for each of its evaluations, fewer if fewer are free."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._free_for_finals > 0)
            taken = min(evaluations, self._free_for_finals)
            self.of_finals += taken
        try:
            yield taken
        finally:
            self.of_finals -= taken
            await self._tell()

    @property
    def _free_for_finals(self) -> int:
        most = max(1, self._slots * 3 // 4) if self._searches_left > 0 else self._slots
        return most - self.of_finals

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class FinalTimes:
    """How long an evaluation of a final takes, by the stages of the last ones.

    Args:
        assumed_s: the expectation in seconds before one has ended.
    """

    def __init__(self, assumed_s: float) -> None:
        self._assumed_s = assumed_s
        self._seconds: dict[tuple[int, int], float] = {}

    def learn(self, store: RunStore, run: int, fidelity: Fidelity) -> None:
        """Take in the finals of a run."""
        for sequence in store.made_by(run, VERIFY):
            found = store.evaluation(run, sequence)
            if found and found.fidelity is fidelity and found.status is Status.CORRECT:
                self._seconds[run, sequence] = stages_s(found.durations_s)

    @property
    def expected_s(self) -> float:
        """The median of the last ones."""
        return statistics.median([*self._seconds.values()][-_RECENT:] or [self._assumed_s])
