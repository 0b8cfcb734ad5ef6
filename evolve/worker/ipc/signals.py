"""Words in memory that a judge and one runner share: when a window begins, and that it is done.

Its calls are handed over one by one: the judge says that the inputs of a call are there, the
runner makes the call, and says where its outputs lie before it is given the next.

A runner may write anything there. It can say no more there than over its channel: that it is done,
and where outputs lie. The judge looks there by itself before its clock stops.
"""

import ctypes
import mmap
import time
from collections.abc import Sequence

from evolve.worker.ipc import native
from evolve.worker.ipc.memfd import make_shared

# Words; the first four on lines of their own.
_GO, _DONE, _GIVEN, _MADE, _COUNT, _INSIDE, _FIRST = 0, 8, 16, 24, 32, 33, 40
SIZE = 1 << 20
MAX_ADDRESSES = SIZE // 8 - _FIRST
_TOO_MANY = "a block has more outputs than addresses can be sent"


class Signals:
    """Such memory, mapped; as the judge makes it (`Signals()`), or a runner that is sent it.

    Args:
        fd: Of the page; None makes a new one, whose descriptor is `fd` from then on.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = make_shared(SIZE) if fd is None else fd
        self._map = mmap.mmap(self.fd, SIZE)
        self._words = memoryview(self._map).cast("q")
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

    @property
    def given(self) -> int:
        """Address of the word with the number of the last call whose inputs are there."""
        return self.address + 8 * _GIVEN

    @property
    def made(self) -> int:
        """Address of the word with the number of the last call that was made."""
        return self.address + 8 * _MADE

    # --- the judge's side -----------------------------------------------------------------------

    @staticmethod
    def word(output: int) -> int:
        """Which word of the page has the address of an output, counted over the block's calls."""
        if output >= MAX_ADDRESSES:
            raise ValueError(_TOO_MANY)
        return _FIRST + output

    def answer(self) -> tuple[float, tuple[int, ...]]:
        """The runner's entries: seconds by its own account, and addresses."""
        count = max(0, min(int(self._words[_COUNT]), MAX_ADDRESSES))
        addresses = self._words[_FIRST : _FIRST + count].tolist()
        return int(self._words[_INSIDE]) * 1e-9, tuple(addresses)

    # --- the runner's side ------------------------------------------------------------------------

    def await_go(self, library: ctypes.CDLL, sequence: int, spin_s: float, seconds: float) -> bool:
        """Wait for the window of this number to begin; whether it did in that time."""
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        spin_ns = int(spin_s * 1e9)
        return bool(library.evolve_wait(self.go, sequence, spin_ns, deadline, -1) == native.SEEN)

    def finish(self, library: ctypes.CDLL, sequence: int, outputs: int, seconds: float) -> None:
        """Say that the calls are done, and how many outputs they gave."""
        self._words[_COUNT] = outputs
        self._words[_INSIDE] = int(seconds * 1e9)
        library.evolve_signal(self.done, sequence)


class Calls:
    """A runner's calls in one window, as they are handed over.

    Args:
        signals: The page.
        library: The worker's C library.
        sequence: Number of the window.
        spin_s: How long to spin for a call before sleeping.
        seconds: For all of them.
    """

    def __init__(
        self, signals: Signals, library: ctypes.CDLL, sequence: int, spin_s: float, seconds: float
    ) -> None:
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        self._turn, self._signal = library.evolve_turn, library.evolve_signal
        self._signals, self._words = signals, signals._words
        self._how = int(spin_s * 1e9), deadline
        self._number = sequence << native.CALL_BITS
        self._outputs = 0

    def await_next(self) -> None:
        """The call before it has been made: wait until the inputs of the next are there.

        Raises:
            TimeoutError: they do not come in that time.
        """
        self._number += 1
        signals = self._signals
        if self._turn(signals.made, signals.given, self._number, *self._how) != native.SEEN:
            raise TimeoutError("a call was not given")

    def tell(self, addresses: Sequence[int]) -> None:
        """Say where the outputs of a call lie."""
        first = self._outputs
        self._outputs += len(addresses)
        if self._outputs > MAX_ADDRESSES:
            raise ValueError(_TOO_MANY)
        for at, address in enumerate(addresses, _FIRST + first):
            self._words[at] = address

    def end(self) -> int:
        """All have been made; how many outputs they gave."""
        self._signal(self._signals.made, self._number)
        return self._outputs
