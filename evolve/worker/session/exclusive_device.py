"""Exclusive use of the device, while other processes wait, ready for their turn."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from evolve.worker.base.faults import BusyFault, CandidateFault, SideFault, candidate_fault_of
from evolve.worker.base.infra import CrowdedFault, InfraFault, OccupiedFault
from evolve.worker.devices.base import Device
from evolve.worker.processes.host_locks import HostLock, Stopwatch
from evolve.worker.processes.runner_process import RunnerProcess, close_all
from evolve.worker.runner import tool_process

_QUIET_S = 0.5  # for work on its way to the device when its process was stopped
_TOOL_QUIET_S = tool_process.SECONDS  # the same under a tool: kernels are a thousand times as slow
_QUIET_POLL_S = 0.01
_STANDING_SLACK_S = 0.002  # of processor time


@dataclass(frozen=True, slots=True)
class Turn:
    """One's time alone with the device: how long it has lasted, and foreign processes meanwhile."""

    device: Device
    watch: Stopwatch
    mine: frozenset[RunnerProcess]
    before: frozenset[int] = field(default_factory=frozenset)

    @contextlib.contextmanager
    def only(self, some: Collection[RunnerProcess]) -> Iterator[None]:
        """Of one's own processes some; the others stand still."""
        with _still(self.mine.difference(some)):
            yield

    def strangers(self) -> frozenset[int]:
        """Foreign processes that appeared on the device since it began."""
        return self.device.others() - self.before


class DeviceLock:
    """Stops all other processes of candidates while one evaluation has the device alone.

    The other processes are ready for their own turn, or import and compile. During exclusive use
    they are stopped with their children, and none of their work is left on the device.

    Attributes:
        lock: held shared by all work on the device, and exclusively by a turn.
    """

    def __init__(self, device: Device, lock: HostLock) -> None:
        self.lock = lock
        self._device = device
        self._processes: set[RunnerProcess] = set()  # grows under the shared lock, of many threads
        self._changing = threading.Lock()

    def add(self, process: RunnerProcess) -> None:
        """From now on it is stopped when another has the device alone."""
        with self.lock.shared(), self._changing:
            self._processes = {known for known in self._processes if known.alive} | {process}

    @contextlib.contextmanager
    def only(self, start: Callable[[], RunnerProcess]) -> Iterator[RunnerProcess]:
        """A process of the judge that has the device alone; it ends with the context."""
        with start() as process, self.alone([process]):
            yield process

    @contextlib.contextmanager
    def alone(
        self, mine: Collection[RunnerProcess] = (), *, settles: bool = False
    ) -> Iterator[Turn]:
        """The device for these processes and us; they are dead if it ends with an error.

        Args:
            mine: The processes.
            settles: Whether to find out, if it is busy and foreign processes use it too, whose
                work that is.

        Raises:
            CrowdedFault: it is busy, and others may be the reason.
            OccupiedFault: they are.
        """
        with contextlib.ExitStack() as thaws, self.lock.exclusive(thaws.close) as watch:
            rest = {process for process in self._processes if process.alive}.difference(mine)
            turn = Turn(self._device, watch, frozenset(mine), self._device.others())
            thaws.callback(_thaw, rest)
            with _standing(rest), contextlib.ExitStack() as on_failure:
                # Or the next would find their running work.
                on_failure.callback(_close_now, mine)
                try:
                    if rest:
                        with _still(mine):  # its own work is for its turn to find
                            self._wait_until_quiet(rest)
                    yield turn
                except (CandidateFault, SideFault) as error:
                    if isinstance(candidate_fault_of(error), BusyFault):
                        is_crowded = any(process.has_candidate for process in rest)
                        self._require_our_doing(error, turn, is_crowded, settles)
                    raise
                on_failure.pop_all()

    def _require_our_doing(
        self, error: Exception, turn: Turn, is_crowded: bool, settles: bool
    ) -> None:
        """CrowdedFault if another process may have kept the device busy.

        To take the candidate's processes away settles whose work it was, if no others are
        there.
        """
        if not (is_crowded or turn.before or turn.strangers()):
            return
        if is_crowded or not settles:
            raise CrowdedFault(f"others were there while {error}") from error
        _close_now(turn.mine)
        if not (self._falls_idle(_QUIET_S) and self._stays_idle()):
            raise OccupiedFault(
                "processes that are none of ours keep the device busy: it was so with nothing of "
                "ours there"
            ) from error

    def _wait_until_quiet(self, rest: Collection[RunnerProcess]) -> None:
        """For their running work, and for memory that the driver wipes.

        A tool makes kernels slow, so its work has longer; then it is ended, for a kernel without an
        end is no neighbour's fault.
        """
        if self._falls_idle(_QUIET_S):
            return
        if tools := [process for process in rest if process.is_observed]:
            if self._falls_idle(_TOOL_QUIET_S):
                return
            _close_now(tools)
            if self._falls_idle(_QUIET_S):
                return
        if any(process.has_candidate for process in rest):
            raise CrowdedFault("the device is busy with leftover work of another candidate")

    def _falls_idle(self, patience_s: float) -> bool:
        """Whether it is idle before long."""
        deadline = time.monotonic() + patience_s
        while not self._device.is_idle():
            if time.monotonic() > deadline:
                return False
            time.sleep(_QUIET_POLL_S)
        return True

    def _stays_idle(self) -> bool:
        """Whether it is idle for as long as that: work in bursts has idle moments as well."""
        deadline = time.monotonic() + _QUIET_S
        while time.monotonic() < deadline:
            if not self._device.is_idle():
                return False
            time.sleep(_QUIET_POLL_S)
        return True


def _used(process: RunnerProcess) -> float:
    """Processor seconds; none of one that has ended meanwhile."""
    with contextlib.suppress(CandidateFault, InfraFault):
        return process.cpu_seconds() if process.alive else 0.0
    return 0.0


def _close_now(processes: Collection[RunnerProcess]) -> None:
    """By the thread that has the device alone."""
    for process in processes:
        process.end_within(contextlib.nullcontext)
    close_all(processes)


@contextlib.contextmanager
def _still(processes: Collection[RunnerProcess]) -> Iterator[None]:
    """Inside these stand still; CrowdedFault as by `_standing`."""
    try:
        with _standing(processes):
            yield
    finally:
        _thaw(processes)


@contextlib.contextmanager
def _standing(processes: Collection[RunnerProcess]) -> Iterator[None]:
    """These stand still from now on.

    Raises:
        CrowdedFault: one has had itself woken, and may have disturbed timing.
    """
    for process in processes:
        process.freeze()
    before = {process: _used(process) for process in processes}
    yield
    if any(_used(process) > before[process] + _STANDING_SLACK_S for process in processes):
        raise CrowdedFault("a process of another candidate worked while it was stopped")


def _thaw(processes: Iterable[RunnerProcess]) -> None:
    for process in processes:
        process.thaw()
