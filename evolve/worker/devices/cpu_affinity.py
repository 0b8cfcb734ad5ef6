"""Which cores a worker keeps to where several work side by side, one for each GPU."""

import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path

from evolve.worker.processes.host_locks import try_to_hold

_FRESH_S = 1.0
_LEFT_FREE = 4  # cores that all may use, before one is set apart for the timed process


def keep_to_share(part: int, parts: int) -> None:
    """Keep this process, and all that it starts, to one of equal parts of its cores.

    Threads of one physical core stay together, so that two workers that measure at the same time
    do not wait on the same one. If there are fewer cores than parts, all are kept.
    """
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_first_sibling(core), core))
    ends = [len(cores) * at // parts for at in (part, part + 1)]
    os.sched_setaffinity(0, cores[slice(*ends)] or cores)


class ClockCores:
    """Where a judge of a GPU keeps time, and where its runners work: both wait without sleeping.

    Judges of one host that know nothing of each other, such as runs begun by hand for each GPU,
    take different cores: the first, with its siblings, that no other judge has taken, to keep time
    on, and the next for the timed process. There all sides work one after the other: processes of
    one program, each on another core, took 1.3 to 1.9 ms for the same launches (an H200's host).

    Args:
        cores: That may be used.
    """

    def __init__(self, cores: Iterable[int]) -> None:
        by_first = itertools.groupby(
            sorted(cores, key=lambda core: (_first_sibling(core), core)), _first_sibling
        )
        self._groups = {first: set(siblings) for first, siblings in by_first}
        self._held: list[int] = []  # until this process ends
        taken = self._take()
        self._mine = next(iter(self._groups)) if taken is None else taken
        self._timed: int | None = None
        self._runners: set[int] = set()
        self._fresh_until = 0.0
        if sum(not self._is_taken(first) for first in self._groups) > _LEFT_FREE:
            self._timed = self._take()

    @property
    def of_clock(self) -> set[int]:
        """All, if there are too few to keep one free."""
        return self._groups[self._mine] if self._many else self._all

    @property
    def of_timed(self) -> set[int]:
        """Of that core one thread, not its sibling; those of all runners, if cores are few."""
        if self._timed is None:
            return self.of_runners()
        return {min(self._groups[self._timed])}

    @property
    def has_own(self) -> bool:
        """Whether there is a core to keep time on, and one for the timed process."""
        return self._many and self._timed is not None

    def of_runners(self) -> set[int]:
        """Those that were free a moment ago."""
        if not self._many:
            return self._all
        if time.monotonic() > self._fresh_until:
            self._runners, self._fresh_until = self._free(), time.monotonic() + _FRESH_S
        return self._runners

    def _free(self) -> set[int]:
        """Those that are free."""
        free = [group for first, group in self._groups.items() if not self._is_taken(first)]
        return set().union(*free) or self._all - self.of_clock

    def _take(self) -> int | None:
        """A core that no other judge has."""
        for first in self._groups:
            held = try_to_hold(_lock_of(first))
            if held is not None:
                self._held.append(held)
                return first
        return None

    @property
    def _all(self) -> set[int]:
        return set().union(*self._groups.values())

    @property
    def _many(self) -> bool:
        return len(self._all) > 2 * len(self._groups[self._mine])

    def _is_taken(self, first: int) -> bool:
        if first in (self._mine, self._timed):
            return True
        held = try_to_hold(_lock_of(first))
        if held is not None:
            os.close(held)
        return held is None


def _lock_of(first: int) -> str:
    return f"core-{first}"


def _first_sibling(core: int) -> int:
    """The lowest number of a thread on the same physical core; its own if that is not known."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        return int(path.read_text().replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return core
