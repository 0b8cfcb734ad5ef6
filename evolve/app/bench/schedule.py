"""Which of a bench's tasks come first, how many at once, and how long they take."""

import math
import statistics
from collections import deque
from collections.abc import Sequence

from evolve.app.bench.plan import Entry
from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.core.run_store import RunStore

_RECENT = 16
_AT_ONCE_S = 1.0  # what takes less had been done before


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
    """Few, so that those begun end soon, and no slot waits for work."""
    return min(slots, max(2, slots // 2))


def finals_at_once(slots: int) -> int:
    """So many before searches wait; these have the slots that are left."""
    return max(1, slots * 3 // 4)


class Durations:
    """Wall times of searches and of finals in seconds, estimated by recent medians.

    Args:
        first_s: the estimate before one of a kind has ended.
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._searches: deque[float] = deque(maxlen=_RECENT)
        self._finals: deque[float] = deque(maxlen=_RECENT)

    def recall(self, entries: Sequence[Entry], store: RunStore, fidelity: Fidelity | None) -> None:
        """The finals of earlier calls, by the stages of their evaluations."""
        runs = {run.name: run.id for run in store.runs()}
        for run in (runs[entry.task.run] for entry in entries if entry.task.run in runs):
            for sequence in store.made_by(run, VERIFY):
                found = store.evaluation(run, sequence)
                if found and found.fidelity is fidelity and found.status is Status.CORRECT:
                    stages = found.durations_s.items()
                    self.measured(sum(s for name, s in stages if not name.startswith("timing_")))

    def searched(self, seconds: float) -> None:
        """A whole search has ended."""
        if seconds > _AT_ONCE_S:
            self._searches.append(seconds)

    def measured(self, seconds: float) -> None:
        """A final has ended."""
        if seconds > _AT_ONCE_S:
            self._finals.append(seconds)

    @property
    def search_s(self) -> float:
        """The next search."""
        return statistics.median(self._searches or (self._first_s,))

    @property
    def final_s(self) -> float:
        """The next final."""
        return statistics.median(self._finals or (self._first_s,))
