"""How far calls of models run ahead of the judge.

Little's law: a judge that takes a program every so many seconds is kept busy by as many calls as
begin while one is answered. More would only queue: their programs come late to be judged, and
their prompts know nothing of those that stand before them.
"""

import math

TYPICAL_CALL_S = 60.0
"""Taken for a call's time before the first one has ended."""

BACKLOG = 2
"""Per slot of the judge: proposals beyond the calls, so that it has something when one is late."""


class Rounds:
    """Lets answers be asked for in batches, each when all steps before it are judged.

    Args:
        batch: answers of a round; None for no rounds (`evolve.search.schedule.Schedule`).
    """

    def __init__(self, batch: int | None) -> None:
        self._batch = batch
        self._left = 0

    def may_ask(self, under_way: int) -> bool:
        """Whether another answer may be asked for while so many steps are not judged."""
        if self._batch is not None and not under_way:
            self._left = self._batch
        return self._batch is None or self._left > 0

    def asked(self) -> None:
        """An answer was asked for."""
        self._left = max(self._left - 1, 0)


class LLMConcurrency:
    """Measures both sides in one session, in seconds of the event loop's clock.

    Args:
        calls: how many calls may be under way at once.
        judged_at_once: the slots of the judge.
    """

    def __init__(self, calls: int, judged_at_once: int) -> None:
        self._most_calls = calls
        self._slots = judged_at_once
        self._calling_s = 0.0
        self._calls = 0
        self._programs = 0
        self._judging_s = 0.0
        self._judged = 0

    def called(self, seconds: float) -> None:
        """A call has ended, with or without a program."""
        self._calling_s += seconds
        self._calls += 1

    def proposed(self) -> None:
        """A reply was a program."""
        self._programs += 1

    def judged(self, seconds: float) -> None:
        """An evaluation has ended."""
        self._judging_s += seconds
        self._judged += 1

    @property
    def call_s(self) -> float:
        """The average time of a call; 0 before one has ended."""
        return self._calling_s / max(self._calls, 1)

    @property
    def ahead(self) -> int:
        """Calls and proposals on their way to the judge at most."""
        return self._needed + BACKLOG * self._slots

    @property
    def _needed(self) -> int:
        """Calls under way that keep the judge busy; all that are allowed until that is known."""
        if not self._judging_s:
            return self._most_calls
        call_s = self._calling_s / max(self._programs, 1) or TYPICAL_CALL_S
        needed = call_s * self._slots * self._judged / self._judging_s
        return min(self._most_calls, math.ceil(needed))
