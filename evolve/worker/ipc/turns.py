"""Words in memory that a judge and one runner share, by which calls are handed over one by one.

The judge writes the inputs of a call and says so; the runner makes the call and says where its
outputs lie; only then come the inputs of the next. So calls cannot be merged into one. A runner's
words there are only places of outputs.

Each side spins for as long as the other needs on a core of its own, and sleeps (futex) if that one
has none: a busy host may have given both the same.
"""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Sequence

from evolve.worker.ipc.memfd import make_shared
from evolve.worker.sandbox import syscalls

_GIVEN, _DONE, _FIRST = 0, 8, 16  # words; the first two on lines of their own
_SIZE = mmap.PAGESIZE
_MAX_OUTPUTS = _SIZE // 8 - _FIRST
_SPINS = 256  # looks, some 10 us
_NAP_NS = 1_000_000  # between checks for other events
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(syscalls.MACHINE)
_WAIT, _WAKE = 0, 1


class Turns:
    """One such page, mapped; as the judge makes it (`Turns()`), or a runner that is sent it."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = make_shared(_SIZE) if fd is None else fd
        mapping = mmap.mmap(self.fd, _SIZE)
        self._words = memoryview(mapping).cast("q")
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        self._nap = (ctypes.c_int64 * 2)(0, _NAP_NS)

    def close(self) -> None:
        """Give the memory back once the process has ended."""
        os.close(self.fd)

    # --- the judge's side -----------------------------------------------------------------------

    def begin(self) -> None:
        """No call is given yet, and none done."""
        self._words[_GIVEN] = self._words[_DONE] = 0

    def give(self, number: int, is_over: Callable[[], bool]) -> bool:
        """The inputs of call `number`, counted from 1, are there: wait until it is done.

        Returns:
            Whether it is; it may be over before.
        """
        self._set(_GIVEN, number)
        return self._wait(_DONE, number, is_over)

    def _set(self, word: int, number: int) -> None:
        self._words[word] = number
        self._futex(word, _WAKE, 1)

    def _wait(self, word: int, number: int, is_over: Callable[[], bool]) -> bool:
        """Until a word is no less than a number; whether it is, or it is over."""
        words = self._words
        while True:
            for _ in range(_SPINS):
                if words[word] >= number:
                    return True
            if is_over():
                return words[word] >= number  # it may have come before it was over
            self._futex(word, _WAIT, number - 1)

    def _futex(self, word: int, operation: int, value: int) -> None:
        if _FUTEX is None:
            os.sched_yield()
            return
        at = ctypes.c_void_p(self._address + 8 * word)  # the lower half of it
        with contextlib.suppress(OSError):  # it has another value by now, or the nap is over
            syscalls.syscall(_FUTEX, at, operation, ctypes.c_uint32(value), ctypes.byref(self._nap))

    def outputs(self, count: int) -> tuple[int, ...]:
        """Places of so many outputs of the last call, as the runner claims."""
        return tuple(self._words[_FIRST : _FIRST + min(count, _MAX_OUTPUTS)])

    # --- the runner's side ------------------------------------------------------------------------

    def await_given(self, number: int) -> None:
        """Wait for the inputs of that call."""
        self._wait(_GIVEN, number, lambda: False)

    def done(self, number: int, outputs: Sequence[int]) -> None:
        """That call is done, and its outputs lie there."""
        words = self._words
        for at, address in enumerate(outputs[:_MAX_OUTPUTS], _FIRST):
            words[at] = address
        self._set(_DONE, number)
