"""How a call to a worker can fail without a verdict."""

from evolve.core.errors import EvaluatorUnavailable, UsageError

CLOSED = "the evaluator is closed"


class CallFailed(Exception):
    """The worker gave no answer to a call, or none that can be used; the message says why."""


class WorkerDied(CallFailed):
    """The worker ended under a call; any of the calls under way may be the cause."""


class CallOverdue(CallFailed):
    """The worker missed the deadline of a call and was killed."""


class PlaceLost(CallFailed):
    """The worker's host, or the way to it, was lost: that says nothing about the candidates."""


# By name, for faults that another process reports.
FAULTS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (CallFailed, WorkerDied, CallOverdue, PlaceLost, EvaluatorUnavailable, UsageError)
}
