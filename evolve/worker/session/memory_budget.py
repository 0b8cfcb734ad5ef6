"""A memory budget for concurrent evaluations: requests for more than is free wait."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PATIENCE_S = 30.0
_POLL_S = 0.5  # between checks whether the patience has ended


@dataclass(frozen=True, eq=False, slots=True)
class _Waiting:
    """An entry of the queue, since when, and whether for a turn."""

    amount: int
    since: float
    is_turn: bool


class _OfThread(threading.local):
    """The memory of each thread, its number of admission, and whether others held some then."""

    has = 0
    number = 0
    has_met = False


class MemoryBudget:
    """A memory-weighted semaphore of `size` bytes (0: no limit) with a number of places for turns.

    Small requests may overtake a large one for at most `patience_s`: emptying the device for each
    large request costs more. Afterwards the queue is first in, first out. A request for a turn is
    not overtaken once a place is free: otherwise new requests would take the memory that the last
    turn frees, and no turn could begin before they end.
    """

    def __init__(self, size: int, places: int = 1, patience_s: float = PATIENCE_S) -> None:
        self._size = size
        self._free = size
        self._let_in = 0  # so many have been
        self._places = places
        self._patience_s = patience_s
        self._queue: list[_Waiting] = []
        self._changed = threading.Condition()
        self._of_thread = _OfThread()

    @property
    def holds_all(self) -> bool:
        """Whether this thread holds the whole budget, so that no more can become free."""
        return self._of_thread.has == self._size

    @property
    def had_concurrent(self) -> bool:
        """Whether another thread has held some of it since this one was admitted."""
        return self._of_thread.has_met or self._let_in > self._of_thread.number

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        """Hold `amount` of it, or the whole budget if that is less."""
        outer = self._of_thread.has
        try:
            self._take(amount)
            yield
        finally:
            self._keep(0)
            self._of_thread.has = outer

    @contextmanager
    def turn(self, amount: int) -> Iterator[None]:
        """Hold a place, and `amount` instead of the memory held before, within the context.

        A waiting thread holds no memory, and holds no more than before afterwards. A thread that
        holds the whole budget does not wait: it is alone, and the holder of the place may be
        waiting for its memory.
        """
        before = self._of_thread.has
        if 0 < self._size == before:
            yield
            return
        self._keep(0)
        self._take(amount, is_turn=True)
        try:
            yield
        finally:
            self._keep(before, places=1)

    def _take(self, amount: int, is_turn: bool = False) -> None:
        self._of_thread.has = 0
        with self._changed:
            me = _Waiting(min(amount, self._size), time.monotonic(), is_turn)
            self._queue.append(me)
            try:
                # The wait may end without a notification.
                while not self._changed.wait_for(lambda: self._may_go(me), _POLL_S):
                    pass
                self._note_company(me)
                self._free -= me.amount
                self._places -= is_turn
            finally:  # or later ones would wait for one that has gone
                self._queue.remove(me)
                self._changed.notify_all()
        self._of_thread.has = me.amount

    def _note_company(self, me: _Waiting) -> None:
        """Who is let in meets who is there; who comes back for a turn may have met some before."""
        mine = self._of_thread
        mine.has_met = self._free < self._size or (me.is_turn and self.had_concurrent)
        self._let_in += me.amount > 0
        mine.number = self._let_in

    def _may_go(self, me: _Waiting) -> bool:
        """Whether it fits, and is the first that is not passed, or else the first that fits."""
        impatient = time.monotonic() - self._patience_s
        next_ones = [
            one for one in self._queue if (self._places if one.is_turn else one.since < impatient)
        ] or [one for one in self._queue if not one.is_turn and one.amount <= self._free]
        return next_ones[:1] == [me] and me.amount <= self._free

    def _keep(self, amount: int, places: int = 0) -> None:
        """Give back this thread's excess, and a place."""
        kept = min(amount, self._of_thread.has)
        with self._changed:
            self._free += self._of_thread.has - kept
            self._places += places
            self._of_thread.has = kept
            self._changed.notify_all()
