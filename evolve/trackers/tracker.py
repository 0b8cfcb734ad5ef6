"""The protocol of a tracker, and its events."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from evolve.core.errors import EvolveError, needing
from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Ratio
from evolve.core.protocols import Progress
from evolve.search.execution.calls import Answered
from evolve.search.execution.judging import Told

_KINDS = {Fidelity.SEARCH: "step", Fidelity.SCREEN: "screen", Fidelity.VERIFY: "verified"}


class TrackerFailed(EvolveError, RuntimeError):
    """A tracker cannot be written to; the search goes on without it."""


@dataclass(frozen=True, slots=True)
class Point:
    """The values that one told step adds to the curves of a run.

    Attributes:
        sequence: number of the step. Steps are told in another order than they were asked in.
        values: numbers by `group/name`, units in the name; unknown ones are left out.
    """

    sequence: int
    values: Mapping[str, float]


class Tracker(Protocol):
    """A sink of curves. Every method may raise `TrackerFailed`, and nothing else.

    The constructor checks settings and that its library is there (`require`), and opens nothing.
    """

    def begin(self, name: str, identity: str, config: Mapping[str, Any]) -> None:
        """A session of a run begins, perhaps not the first one.

        Args:
            name: the run's.
            identity: the same for all sessions of a run, and for no other run; letters and digits.
            config: plain data.
        """
        ...

    def add(self, point: Point) -> None:
        """A step was told."""
        ...

    def end(self) -> None:
        """The session is over; added values are visible or on disk afterwards."""
        ...


@runtime_checkable
class DetailTracker(Tracker, Protocol):
    """A tracker that also gets the events. Both methods may raise `TrackerFailed`."""

    def told(self, told: Told) -> None:
        """A step was told; comes after its point."""
        ...

    def answered(self, event: Answered) -> None:
        """A call of a model has ended, and its reply is stored."""
        ...


def require(library: str, extra: str, *, tracker: str = "") -> None:
    """Raise UsageError if a library of a tracker, which its extra brings, is not installed."""
    with needing(f"trackers={tracker or extra}", extra, (library.partition(".")[0],)):
        if importlib.util.find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)


def point(told: Told, baseline: str) -> Point:
    """The point of a told step. A speedup is shown for strictly correct programs only."""
    values = _used(told.progress) | _best(told.progress)
    evaluation = told.evaluation
    kind = _KINDS.get(evaluation.fidelity)
    if kind is not None:
        values[f"{kind}/correct"] = float(evaluation.strict)
        ratio = evaluation.ratios.get(baseline) if evaluation.strict else None
        values |= _spread(f"{kind}/speedup", ratio)
    return Point(told.ticket.sequence, values)


def _used(progress: Progress) -> dict[str, float]:
    """The run's use of its budget so far."""
    used: dict[str, float] = {
        "used/proposals": progress.proposals,
        "used/tunings": progress.tunings,
        "used/evaluations": progress.evaluations,
        "used/screens": progress.screens,
        "used/wall_time_s": progress.wall_time_s,
        "used/device_time_s": progress.device_time_s,
        "used/model_calls": progress.calls,
        "used/tokens": progress.tokens,
    }
    return used if progress.usd is None else used | {"used/usd": progress.usd}


def _best(progress: Progress) -> dict[str, float]:
    best = _spread("best/speedup", progress.best)
    share = progress.speed_of_light
    return best if share is None else best | {"best/speed_of_light": share}


def _spread(name: str, ratio: Ratio | None) -> dict[str, float]:
    """No number without its spread."""
    if ratio is None:
        return {}
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}
