"""Room for what is under way at once: requests for more than is left wait."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PATIENCE_S = 30.0
_POLL_S = 0.5  # how often the patient look whether they still are


@dataclass(frozen=True, eq=False, slots=True)
class _Waiting:
    """An entry of the queue, since when, and whether for a turn."""

    amount: int
    since: float
    is_turn: bool


class _OfThread(threading.local):
    """Each thread's part of a room, when it was let in, and whether others were there then."""

    has = 0
    number = 0
    has_met = False


class Room:
    """So many bytes (0 stands for no limit), and places for turns.

    Who needs much may be passed by those who need less, for `patience_s`: to have the device empty
    for each of them costs more than to let them follow one another. Then it is passed no more, nor
    is who waits for a turn once there is a place: else newcomers would take what the last turn
    leaves, and no turn could begin before they are done. Among these the first goes first.
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
    def is_all_ours(self) -> bool:
        """Whether this thread has all of it, so that more would not become free if others end."""
        return self._of_thread.has == self._size

    @property
    def has_company(self) -> bool:
        """Whether another thread has had some of it since this one was let in."""
        return self._of_thread.has_met or self._let_in > self._of_thread.number

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        """Have `amount` of it, all of it if that is less."""
        outer = self._of_thread.has
        try:
            self._take(amount)
            yield
        finally:
            self._keep(0)
            self._of_thread.has = outer

    @contextmanager
    def turn(self, amount: int) -> Iterator[None]:
        """One of the places to the end of the context, and there `amount` instead of what one has.

        Who waits has nothing meanwhile, and keeps no more than it had afterwards. Who has all of it
        does not wait: it is alone, and the holder of the place may be waiting for its part.
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
        mine.has_met = self._free < self._size or (me.is_turn and self.has_company)
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
        """Give back what this thread has beyond that, and a place."""
        kept = min(amount, self._of_thread.has)
        with self._changed:
            self._free += self._of_thread.has - kept
            self._places += places
            self._of_thread.has = kept
            self._changed.notify_all()
