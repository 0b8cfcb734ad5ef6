"""Words in memory that a referee and one runner share: when a window begins, and that it is done.

A runner may write anything there. What it says is no more than what it could say over its channel:
that it is done, and where outputs lie. The referee looks there by itself before its clock stops.
"""

import ctypes
import mmap
import time

import numpy as np

from evolve.worker import native
from evolve.worker.sealed import make_shared

_GO, _DONE, _COUNT, _INSIDE, _FIRST = 0, 8, 16, 17, 24  # words; the first two on lines of their own
SIZE = 1 << 20
MOST_ADDRESSES = SIZE // 8 - _FIRST
_TOO_MANY = "a block has more outputs than addresses can be sent"


class Signals:
    """Such memory, mapped; as the referee makes it (`Signals()`), or a runner that is sent it.

    Args:
        fd: Of the page; None makes a new one, whose descriptor is `fd` from then on.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = make_shared(SIZE) if fd is None else fd
        self._map = mmap.mmap(self.fd, SIZE)
        self._words = np.frombuffer(self._map, dtype=np.int64)
        self.address = int(ctypes.addressof(ctypes.c_char.from_buffer(self._map)))
        self.sequence = 0

    @property
    def go(self) -> int:
        """Address of the word that begins a window."""
        return self.address + 8 * _GO

    @property
    def done(self) -> int:
        """Address of the word that says that its calls are done."""
        return self.address + 8 * _DONE

    # --- the referee's side -----------------------------------------------------------------------

    @staticmethod
    def word(output: int) -> int:
        """Which word of the page has the address of an output, counted over the block's calls."""
        if output >= MOST_ADDRESSES:
            raise ValueError(_TOO_MANY)
        return _FIRST + output

    def answer(self) -> tuple[float, tuple[int, ...]]:
        """What the runner has left: seconds by its own account, and addresses."""
        count = max(0, min(int(self._words[_COUNT]), MOST_ADDRESSES))
        addresses = self._words[_FIRST : _FIRST + count].tolist()
        return int(self._words[_INSIDE]) * 1e-9, tuple(addresses)

    # --- the runner's side ------------------------------------------------------------------------

    def await_go(self, library: ctypes.CDLL, sequence: int, spin_s: float, seconds: float) -> bool:
        """Wait for the window of this number to begin; whether it did in that time."""
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        spin_ns = int(spin_s * 1e9)
        return bool(library.evolve_wait(self.go, sequence, spin_ns, deadline, -1) == native.SEEN)

    def tell_places(self, addresses: list[int]) -> None:
        """Say where outputs lie."""
        if len(addresses) > MOST_ADDRESSES:
            raise ValueError(_TOO_MANY)
        self._words[_FIRST : _FIRST + len(addresses)] = addresses
        self._words[_COUNT] = len(addresses)

    def finish(self, library: ctypes.CDLL, sequence: int, seconds: float) -> None:
        """Say that the calls are done."""
        self._words[_INSIDE] = int(seconds * 1e9)
        library.evolve_signal(self.done, sequence)
