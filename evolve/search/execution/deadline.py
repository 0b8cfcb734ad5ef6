"""A limit on wall time: what may still begin before it, and how late running work may end."""

import math
import time

from evolve.search.engine import Search
from evolve.search.execution.limits import Limits
from evolve.search.execution.reserve import Reserve
from evolve.store.champion import champion

LATE_S = 12.0  # after a limit on wall time: running work is cancelled then
_GRACE = 0.5  # of that time: to start a judge anew takes longer than most of an evaluation's rest


class Deadline:
    """When the wall time is used up, and the decisions that follow from it.

    Args:
        search: whose programs are verified.
        limits: what is kept back for a verification.
        reserve: how long one takes.
        late_s: how long after the limit running work may end.

    Attributes:
        ends: the limit on the clock of `time.monotonic`; infinite without one.
    """

    def __init__(self, search: Search, limits: Limits, reserve: Reserve, late_s: float) -> None:
        self._search = search
        self._limits = limits
        self._reserve = reserve
        self._late_s = late_s
        self._due_since = math.inf  # when the verification had to begin, and evaluations ran
        self.ends = math.inf

    @property
    def left_s(self) -> float:
        """Seconds until the limit."""
        return self.ends - time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether all running work has to end."""
        return self.left_s <= -self._late_s

    @property
    def is_unverified(self) -> bool:
        """Whether there is a best program, and no verification of it."""
        best = champion(self._search.store, self._search.run)
        return best is not None and not best.verified

    @property
    def is_to_end(self) -> bool:
        """Whether no verification may begin: the first may end late, others in time."""
        needed_s = -self._late_s if self.is_unverified else self._reserve.verification_s
        return self.left_s <= needed_s

    def has_to_verify(self, under_way: bool) -> bool:
        """Whether the time left is that of the verification; calls go on beside it.

        Evaluations that are `under_way` would be given up, with the judge's process: they have a
        while from then on, however long the verification is expected to take.
        """
        if self._search.leader is None:
            return self.is_late
        if not under_way:
            return self.left_s <= self._limits.kept_s
        now = time.monotonic()
        is_due = self.left_s <= self._reserve.verification_s
        self._due_since = min(self._due_since, now) if is_due else math.inf
        return now - self._due_since >= _GRACE * self._late_s

    def has_time_to_call(self, call_s: float) -> bool:
        """Whether a program that a model is asked for now can still be judged and verified."""
        return self.left_s > call_s + self._limits.kept_s
