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


class FinalSlots:
    """The slots of the judge that finals have: one for each of their evaluations.

    Finals have most of them, and searches the others, so that none idles.
    """

    def __init__(self, slots: int) -> None:
        self.taken = 0
        self._slots = slots
        self._most = max(1, slots * 3 // 4)
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        """Slots for a final that begins with so many evaluations; one of more waits for all."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.taken + count <= max(self._most, count))
            self.taken += count
        try:
            yield
        finally:
            self.taken -= count
            async with self._changed:
                self._changed.notify_all()

    async def leave_one(self) -> None:
        """Wait until finals leave a slot to searches."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.taken < self._slots)


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
