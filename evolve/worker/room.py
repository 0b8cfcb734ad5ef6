"""Room for what is under way at once: whoever needs more than is left waits for it."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

PATIENCE_S = 30.0


@dataclass(frozen=True, eq=False, slots=True)
class _Waiting:
    """Somebody in the queue, and since when."""

    amount: int
    since: float


class Room:
    """So many bytes; 0 stands for no limit.

    Who needs much may be passed by those who need less, for `patience_s`: to have the device empty
    for each of them costs more than to let them follow one another. Then nobody passes any more.
    """

    def __init__(self, size: int, patience_s: float = PATIENCE_S) -> None:
        self._size = size
        self._free = size
        self._patience_s = patience_s
        self._queue: list[_Waiting] = []
        self._changed = threading.Condition()
        self._of_thread = threading.local()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        """Have `amount` of it, all of it where that is less."""
        outer = getattr(self._of_thread, "has", 0)
        try:
            self._take(amount)
            yield
        finally:
            self._give_back()
            self._of_thread.has = outer

    def change(self, amount: int) -> None:
        """Have so much instead of what this thread has taken, and nothing while it waits for that.

        Nobody passes it. Who has all of it keeps it: that is to be alone.
        """
        if self._of_thread.has < self._size:
            self._give_back()
            self._take(amount, since=-math.inf)

    @contextmanager
    def turn(self, places: AbstractContextManager[object], amount: int) -> Iterator[None]:
        """One of some places to the end of the context, and there `amount` instead of what one has.

        Who waits for a place has nothing meanwhile. Who has all of it does not wait: it is alone,
        and whoever has the place may be waiting for what it has.
        """
        if 0 < self._size == self._of_thread.has:
            yield
            return
        self._give_back()
        with places:
            self.change(amount)
            yield

    def _take(self, amount: int, since: float | None = None) -> None:
        me = _Waiting(min(amount, self._size), time.monotonic() if since is None else since)
        self._of_thread.has = 0
        with self._changed:
            self._queue.append(me)
            try:
                self._changed.wait_for(lambda: self._may_go(me))
                self._free -= me.amount
            finally:  # or whoever comes later would wait for somebody who has gone
                self._queue.remove(me)
                self._changed.notify_all()
        self._of_thread.has = me.amount

    def _may_go(self, me: _Waiting) -> bool:
        ahead = self._queue[: self._queue.index(me)]
        tired = time.monotonic() - self._patience_s
        return me.amount <= self._free and not any(
            other.amount <= self._free or other.since < tired for other in ahead
        )

    def _give_back(self) -> None:
        with self._changed:
            self._free += self._of_thread.has
            self._of_thread.has = 0
            self._changed.notify_all()
