"""A session's trackers, fed by the pipeline."""

import json
from collections.abc import Callable, Mapping
from typing import Self

from evolve.core.digest import framed_digest
from evolve.llm.secrets import scrub
from evolve.search.execution.calls import Answered
from evolve.search.execution.judging import Told
from evolve.store import RunRow
from evolve.trackers.tracker import DetailTracker, Tracker, TrackerFailed, point

PRIVATE = ("opponents", "store")  # source text, and a path of this machine


class Feed:
    """A listener that hands every told step to trackers; a context manager for one session.

    A tracker that fails is said once and left out from then on.

    Args:
        trackers: by the name that messages call them.
        run: the run to report. Its configuration reaches them without sources and keys.
        say: shows a line to the user.
    """

    def __init__(
        self, trackers: Mapping[str, Tracker], run: RunRow, say: Callable[[str], None]
    ) -> None:
        self._trackers = dict(trackers)
        self._run = run
        self._say = say

    def __enter__(self) -> Self:
        shown = {name: value for name, value in self._run.config.items() if name not in PRIVATE}
        config = json.loads(scrub(json.dumps({**shown, "task": self._run.task.name})))
        run = self._run
        identity = framed_digest("run", run.name, run.created, run.task.revision)[:16]
        self._each(lambda tracker: tracker.begin(run.name, identity, config))
        return self

    def __call__(self, told: Told) -> None:
        if self._trackers:
            found = point(told, self._run.baseline)
            self._each(lambda tracker: tracker.add(found))
            self._each(lambda tracker: _told(tracker, told))

    def answered(self, event: Answered) -> None:
        """A call of a model has ended."""
        self._each(lambda tracker: _answered(tracker, event))

    def __exit__(self, *_: object) -> None:
        self._each(lambda tracker: tracker.end())

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                act(tracker)
            except TrackerFailed as failure:
                del self._trackers[name]
                why = scrub(" ".join(str(failure).split()))
                self._say(f"trackers.{name}: {why}; the search goes on without it")


def _told(tracker: Tracker, told: Told) -> None:
    if isinstance(tracker, DetailTracker):
        tracker.told(told)


def _answered(tracker: Tracker, event: Answered) -> None:
    if isinstance(tracker, DetailTracker):
        tracker.answered(event)
