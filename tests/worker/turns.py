"""A CPU whose sides take turns as they do on a GPU."""

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.devices.cpu.window import CpuWindow
from evolve.worker.devices.cuda.window import CudaWindow
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.sandbox.supervisor import descendants


class Watched(CpuWindow):
    """Blocks as on the CPU; turns, and who is to blame, as on a GPU."""

    alone = CudaWindow.alone
    _require_quiet = CudaWindow._require_quiet

    def settle(self) -> None:
        """All that there is to see has been seen block by block."""


class TurnsDevice(CpuDevice):
    """A CPU with such windows."""

    def window(self) -> CpuWindow:
        return Watched(self)

    def on_clock_cores(self, process: RunnerProcess) -> AbstractContextManager[None]:
        """No core is set apart."""
        return nullcontext()


class TwoSeats(TurnsDevice):
    """Busy while a process is called `hogging`; notes how many stand while one is timed."""

    timing_slots = 2
    slots = 2
    room = 1 << 40

    def __init__(self, stops: bool = True) -> None:
        super().__init__()
        self.standing: list[int] = []
        self._stops = stops  # whether the work of a process ends when it is stopped

    def is_idle(self) -> bool:
        states = [told(pid) for pid in descendants(os.getpid())]
        self.standing.append(sum(state == "T" for _, state in states))
        quiet = "TZX" if self._stops else "ZX"
        return not any(name == "hogging" and state not in quiet for name, state in states)


def told(pid: int) -> tuple[str, str]:
    """What the system says of a process: its name, and its state."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return "", "X"
    return name, rest.split()[0]


def states(runner):
    return {told(pid)[1] for pid in runner._family()}
