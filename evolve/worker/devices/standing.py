"""A stopped process, while the judge examines its results."""

import contextlib
import time
from collections.abc import Iterator

from evolve.worker.base.faults import MovedFault
from evolve.worker.devices.window import require_no_company
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.processes.stopping import STANDS_S

_SETTLING_S = 100e-6  # of a thread that counts as stopped and is still on its way out
_GLIMPSE_S = 0.0005


@contextlib.contextmanager
def stopped(process: RunnerProcess) -> Iterator[float]:
    """Inside nothing of the candidate's moves: its process stands, and there is no other.

    It stays stopped. A process that had itself woken, by a timer that sends SIGCONT for one, has
    used processor time. Yields its processor time so far, in seconds.

    Raises:
        CandidateFault: there is another process; `MovedFault`: it has moved, or does not stand.
    """
    deadline = time.monotonic() + STANDS_S
    while not process.pause(_GLIMPSE_S):
        require_no_company(process)  # a process in vfork stands once its child has ended
        if time.monotonic() > deadline:
            raise MovedFault("does not stand still when it is stopped")
    used = process.cpu_seconds()
    require_no_company(process)
    yield used
    require_no_company(process)
    if process.cpu_seconds() > used + _SETTLING_S:
        raise MovedFault("went on while it was stopped")
