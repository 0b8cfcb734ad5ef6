"""Words in memory that a referee and one runner share, by which calls are handed over one by one.

The referee writes the inputs of a call and says so; the runner makes the call and says where its
outputs lie; only then come the inputs of the next. So calls cannot be merged into one. What a
runner writes there is no more than a place to look at.

Both sides wait without sleeping: being woken would take longer than the calls that are handed over
in this way. After some time, or where there is but one core, they let others have theirs meanwhile.
"""

import mmap
import os
from collections.abc import Callable, Sequence

from evolve.worker.sealed import make_shared

_GIVEN, _DONE, _FIRST = 0, 8, 16  # words; the first two on lines of their own
_SIZE = mmap.PAGESIZE
_MOST_OUTPUTS = _SIZE // 8 - _FIRST
_LOOKS = 256  # between those at whatever else might have happened
_PATIENCE = 2048 if len(os.sched_getaffinity(0)) > 1 else 0  # looks, 0.1 ms, before others may run


class Turns:
    """One such page, mapped; as the referee makes it (`Turns()`), or a runner that is sent it."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = make_shared(_SIZE) if fd is None else fd
        self._words = memoryview(mmap.mmap(self.fd, _SIZE)).cast("q")

    def close(self) -> None:
        """Give the memory back once the process has ended."""
        os.close(self.fd)

    # --- the referee's side -----------------------------------------------------------------------

    def begin(self) -> None:
        """No call is given yet, and none done."""
        self._words[_GIVEN] = self._words[_DONE] = 0

    def give(self, number: int, is_over: Callable[[], bool]) -> bool:
        """The inputs of call `number`, counted from 1, are there: wait until it is done.

        Returns:
            Whether it is; it may be over before.
        """
        self._words[_GIVEN] = number
        return self._wait(_DONE, number, is_over)

    def _wait(self, word: int, number: int, is_over: Callable[[], bool]) -> bool:
        """Until a word is no less than a number; whether it is, or it is over."""
        words, look = self._words, 0
        while words[word] < number:
            look += 1
            if look > _PATIENCE:
                os.sched_yield()
            if look % _LOOKS == 0 and is_over():
                return words[word] >= number  # it may have come before it was over
        return True

    def outputs(self, count: int) -> tuple[int, ...]:
        """Where so many outputs of the last call lie, as the runner says."""
        return tuple(self._words[_FIRST : _FIRST + min(count, _MOST_OUTPUTS)])

    # --- the runner's side ------------------------------------------------------------------------

    def await_given(self, number: int) -> None:
        """Wait for the inputs of that call."""
        self._wait(_GIVEN, number, lambda: False)

    def done(self, number: int, outputs: Sequence[int]) -> None:
        """That call is done, and its outputs lie there."""
        words = self._words
        for at, address in enumerate(outputs[:_MOST_OUTPUTS], _FIRST):
            words[at] = address
        words[_DONE] = number
