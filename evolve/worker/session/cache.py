"""A cache of the judge's objects that can be made again, as far as memory goes."""

import math
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from evolve.core.errors import UsageError
from evolve.worker.base import shortage
from evolve.worker.base.shortage import is_short_of_memory
from evolve.worker.reference.task_module import task_lock

Made = TypeVar("Made")
_DRAWN = 5  # of which one goes, where room is needed
STALE_S = 300.0  # unused; the inputs of a task that is being searched are used with each verdict
_PASSING_SHARE = 3  # of the bytes, at most, for passing things: on an H200 five blocks of 1 GiB
_PLENTY = 4  # if 1/4 of a GPU's memory is free, no process lacks memory
_ASK_S = 1.0  # between two questions how much is free


@dataclass(slots=True)
class _Held:
    """Something that is kept, its bytes, and the seconds that it took to make."""

    value: Any
    size: int
    seconds: float
    used: float = field(default_factory=time.monotonic)

    @property
    def worth(self) -> float:
        """Seconds for each byte, to make it again; none if it was not used for long."""
        is_stale = time.monotonic() - self.used > STALE_S
        return 0.0 if is_stale else self.seconds / max(1, self.size)


class Store:
    """Things that can be made again, up to a number of bytes.

    Of some drawn at random the one goes that is made again in the least time for its bytes. The
    least recently used would be the wrong one: tasks are judged in turns, and where all of theirs
    is more than fits, each would find that the others have driven out everything. Those of tasks
    that are no longer asked for go before all others.

    Things made quickly for their bytes, as blocks of large inputs are, would drive out others and
    be driven out by them before they are asked for again (`passing`).

    Args:
        capacity: That number.
        release: Lets go of further memory, where it is short.
    """

    def __init__(self, capacity: int, release: Callable[[], None] = lambda: None) -> None:
        self._capacity = capacity
        self._release = release
        self._held: dict[tuple[Any, ...], _Held] = {}
        self._bytes = 0
        self._ask_again = 0.0
        self._passing: OrderedDict[tuple[Any, ...], _Held] = OrderedDict()
        self._lock = threading.RLock()

    def passing(
        self,
        key: tuple[Any, ...],
        make: Callable[[], Made],
        size: Callable[[Made], int],
        about: int,
    ) -> Made:
        """The thing of this key, which leaves two thirds of the bytes to things made slower.

        Where there is no room for it otherwise, it is there until some others have been asked for.
        Arguments are those of `get`.
        """

        def make_room() -> None:
            self._pass_on(about)
            self._make_room(about)

        def keep(made: _Held) -> None:
            most = self._capacity - self._capacity // _PASSING_SHARE - made.size
            if self._may_stay(made.size) and self._shrink(most, made.worth):
                self._hold(key, made)
            else:
                self._pass_on(made.size)
                self._passing[key] = made

        value: Made = self._found(key, make, size, make_room, keep)
        return value

    def _pass_on(self, size: int) -> None:
        """Let go of things that are passing, the one asked for longest ago first."""
        with self._lock:
            while self._passing and (self._passing_bytes + size > self._capacity // _PASSING_SHARE):
                self._passing.popitem(last=False)

    @property
    def _passing_bytes(self) -> int:
        return sum(held.size for held in self._passing.values())

    def get(
        self,
        key: tuple[Any, ...],
        make: Callable[[], Any],
        size: Callable[[Any], int],
        about: int = 0,
        keep: bool = True,
    ) -> Any:
        """The thing of this key.

        Args:
            key: Its name.
            make: Makes it.
            size: Gives its bytes.
            about: These as far as they are known before: so much is let go of first.
            keep: Whether it may be asked for again.
        """

        def keep_if_wanted(made: _Held) -> None:
            if keep and self._make_room(made.size):
                self._hold(key, made)

        return self._found(key, make, size, lambda: self._make_room(about), keep_if_wanted)

    def _found(
        self,
        key: tuple[Any, ...],
        make: Callable[[], Any],
        size: Callable[[Any], int],
        make_room: Callable[[], object],
        keep: Callable[[_Held], None],
    ) -> Any:
        """The thing of this key; `make_room` precedes its making, and `keep` follows it."""
        if (known := self._known(key)) is not None:
            return known
        with task_lock:
            if (known := self._known(key)) is not None:  # another thread has made it meanwhile
                return known
            make_room()
            start = time.monotonic()
            value = self.made(make)
            made = _Held(value, size(value), time.monotonic() - start)
            with self._lock:
                keep(made)
        return value

    def _hold(self, key: tuple[Any, ...], made: _Held) -> None:
        self._held[key] = made
        self._bytes += made.size

    def _may_stay(self, size: int) -> bool:
        """Whether so much may be kept: not if it would cost all that others have here."""
        return size <= self._capacity // 2

    def _make_room(self, size: int) -> bool:
        """Let go of as much as is needed to keep so much; False if that may not be kept."""
        if not self._may_stay(size):
            return False
        with self._lock:
            passing = min(self._passing_bytes, self._capacity // _PASSING_SHARE)
            self._shrink(self._capacity - passing - size)
        return True

    def _shrink(self, most: int, worth: float = math.inf) -> bool:
        """Keep at most so many bytes; False if that would cost something worth more than this."""
        with self._lock:
            while self._held and self._bytes > most:
                drawn = random.sample(list(self._held), min(_DRAWN, len(self._held)))
                least = min(drawn, key=lambda key: self._held[key].worth)
                if self._held[least].worth > worth:
                    return False
                self._bytes -= self._held.pop(least).size
        return True

    def holds(self, key: tuple[Any, ...]) -> bool:
        """Whether the thing of this key is there, to stay or passing."""
        with self._lock:
            return key in self._held or key in self._passing

    def keeps(self, key: tuple[Any, ...]) -> bool:
        """Whether it is there to stay."""
        with self._lock:
            return key in self._held

    def _known(self, key: tuple[Any, ...]) -> Any:
        with self._lock:
            held = self._held.get(key)
            if held is None:
                if (held := self._passing.get(key)) is None:
                    return None
                self._passing.move_to_end(key)
            held.used = time.monotonic()
            return held.value

    def made(self, make: Callable[[], Made]) -> Made:
        """The result of `make`; if memory is short for it, once more with nothing held here.

        Entries in use at that moment stay in memory. The first try may not fall back to the CPU:
        of gigabytes that takes half a minute, and a GPU a second.
        """
        with task_lock:
            holds_any = bool(self._held or self._passing)
            try:
                with shortage.alone(shortage.is_alone() and not holds_any):
                    value = make()
                self._leave_unused()
                return value
            except (torch.OutOfMemoryError, UsageError) as error:
                if not is_short_of_memory(error) or not (self._held or self._passing):
                    raise
            self.let_go()
            return make()

    def _leave_unused(self) -> None:
        """Torch keeps memory that was freed; runners, and their drivers, may need it.

        Not while there is plenty: to give it back and to get it again took a tenth of the time in
        which a judge of several tasks holds `task_lock`; to ask each time whether there is, where
        processes open the device and the driver answers late, a fifth.
        """
        if not torch.cuda.is_initialized():
            return
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if unused > self._capacity // 2 and time.monotonic() >= self._ask_again:
            self._ask_again = time.monotonic() + _ASK_S
            free, total = torch.cuda.mem_get_info()
            if free < total // _PLENTY:
                torch.cuda.empty_cache()

    def let_go(self) -> None:
        """Hold nothing any more."""
        with task_lock, self._lock:
            self._held.clear()
            self._bytes = 0
            self._passing.clear()
        torch.cuda.empty_cache()
        self._release()
