"""Room for what is under way at once: whoever needs much of it waits for its turn, in order."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Room:
    """So many bytes; 0 stands for no limit."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()
        self._of_thread = threading.local()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        """Have `amount` of it, all of it where that is less; nobody who came later goes first."""
        outer = getattr(self._of_thread, "has", 0)
        try:
            self._take(amount)
            yield
        finally:
            self._give_back()
            self._of_thread.has = outer

    def change(self, amount: int) -> None:
        """Have so much instead of what this thread has taken, and nothing while it waits for that.

        Who has all of it keeps it: that is to be alone.
        """
        if self._of_thread.has < self._size:
            self._give_back()
            self._take(amount)

    def _take(self, amount: int) -> None:
        amount, me = min(amount, self._size), object()
        self._of_thread.has = 0
        with self._changed:
            self._waiting.append(me)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is me and self._free >= amount)
                self._free -= amount
            finally:  # or whoever comes later would wait for somebody who has gone
                self._waiting.remove(me)
                self._changed.notify_all()
        self._of_thread.has = amount

    def _give_back(self) -> None:
        with self._changed:
            self._free += self._of_thread.has
            self._of_thread.has = 0
            self._changed.notify_all()
