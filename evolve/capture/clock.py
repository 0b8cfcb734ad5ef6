"""Times of nested calls: by the host's clock, or by events in the stream of a GPU."""

import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

_MAX_EVENTS = 20_000
_Key = tuple[Any, bool, Any]  # outermost call, whether it was its first, and the call


@dataclass(slots=True, eq=False)
class Frame:
    """A call under way."""

    key: _Key
    began: float = 0.0
    spent: float = 0.0
    paused: float = 0.0
    event: Any = None


@dataclass
class Clock:
    """Times in seconds of calls, without those of observing them.

    The first outermost call of a kind builds, tunes and allocates. Totals count it as if it had
    taken as long as the others on average; if there is no other, as it was.

    Attributes:
        spent: in observing, pauses included.
        paused: in pauses.
        built: in pauses to build winners.
    """

    spent: float = 0.0
    paused: float = 0.0
    built: float = 0.0
    _times: dict[_Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    _events: list[tuple[_Key, Any, Any, float]] = field(default_factory=list)
    _outer: Hashable = None
    _calls: Counter[Hashable] = field(default_factory=Counter)
    _began: float | None = None
    _spent_before: float = 0.0

    def begin(self, of: Hashable, entered: float, *, is_outer: bool) -> Frame:
        """A call of this kind begins, which its observer has entered at that time."""
        if is_outer:
            self._outer = of
            self._calls[of] += 1
        if self._began is None:
            wait_for_gpu()
            self._began, self._spent_before = entered, self.spent
        frame = Frame((self._outer, self._calls[self._outer] == 1, of), paused=self.paused)
        if torch.cuda.is_initialized():
            frame.event = torch.cuda.Event(enable_timing=True)
            frame.event.record()
        now = time.perf_counter()
        self.spent += now - entered
        frame.spent, frame.began = self.spent, now
        return frame

    def end(self, frame: Frame) -> float:
        """It ends; gives the time at which it did."""
        now = time.perf_counter()
        if frame.event is None:
            self._times[frame.key].append(now - frame.began - (self.spent - frame.spent))
            return now
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append((frame.key, frame.event, event, self.paused - frame.paused))
        if len(self._events) > _MAX_EVENTS:
            self._settle()
        return now

    @contextmanager
    def pause(self) -> Iterator[None]:
        """The time of this block is left out."""
        wait_for_gpu()
        began = time.perf_counter()
        try:
            yield
        finally:
            wait_for_gpu()
            took = time.perf_counter() - began
            self.spent += took
            self.paused += took

    @contextmanager
    def building(self) -> Iterator[None]:
        """A pause in which a winner is built."""
        before = self.paused
        try:
            with self.pause():
                yield
        finally:
            self.built += self.paused - before

    def total(self) -> float:
        """Seconds from the first call to now; 0.0 if there was none."""
        if self._began is None:
            return 0.0
        self._settle()
        span = time.perf_counter() - self._began - (self.spent - self._spent_before)
        outer = {key: some for key, some in self._times.items() if key[0] == key[2]}
        outside = span - sum(map(sum, outer.values()))
        steady = self._steady(outer).values()
        return max(outside, 0.0) + sum(seconds for _, seconds in steady)

    def found(self) -> Mapping[Any, tuple[int, float]]:
        """Number of calls and seconds by kind."""
        self._settle()
        return self._steady(self._times)

    def _steady(self, times: Mapping[_Key, list[float]]) -> dict[Any, tuple[int, float]]:
        found: dict[Any, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        for (outer, is_first, of), some in times.items():
            others = self._calls[outer] - 1
            weight = 1.0 if not others else 0.0 if is_first else (others + 1) / others
            calls, seconds = found[of]
            found[of] = calls + len(some), seconds + weight * sum(some)
        return found

    def _settle(self) -> None:
        """Take the times of events."""
        wait_for_gpu()
        for key, first, last, paused in self._events:
            self._times[key].append(first.elapsed_time(last) / 1e3 - paused)
        self._events.clear()


def wait_for_gpu() -> None:
    """Until it has done all work; nothing to do where none is used."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def is_recording_graph() -> bool:
    """Whether the GPU records a CUDA graph, in which events have no time."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
