"""A CPU whose sides take turns as they do on a GPU."""

from contextlib import AbstractContextManager, nullcontext

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.devices.cpu.window import CpuWindow
from evolve.worker.devices.cuda.window import CudaWindow
from evolve.worker.processes.runner_process import RunnerProcess


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
