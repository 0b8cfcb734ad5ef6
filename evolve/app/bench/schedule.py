"""Which of a bench's tasks come first, how many at once, and how long a final takes."""

import math
import statistics
from collections import deque
from collections.abc import Sequence

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


def finals_at_once(slots: int) -> int:
    """Most of the slots of the judge; searches have the others, and so none idles."""
    return max(1, slots * 3 // 4)


class FinalTimes:
    """How long finals take; the next one is expected to take the median of the last ones.

    Args:
        first_s: the expectation in seconds before one has ended.
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._seconds: deque[float] = deque(maxlen=_RECENT)

    def recall(self, entries: Sequence[Entry], store: RunStore, fidelity: Fidelity | None) -> None:
        """Finals of earlier calls, by the stages of their evaluations."""
        runs = {run.name: run.id for run in store.runs()}
        for run in (runs[entry.task.run] for entry in entries if entry.task.run in runs):
            for sequence in store.made_by(run, VERIFY):
                found = store.evaluation(run, sequence)
                if found and found.fidelity is fidelity and found.status is Status.CORRECT:
                    self.add(stages_s(found.durations_s))

    def add(self, seconds: float) -> None:
        """One has ended."""
        self._seconds.append(seconds)

    @property
    def expected_s(self) -> float:
        """Of the next one."""
        return statistics.median(self._seconds or (self._first_s,))
