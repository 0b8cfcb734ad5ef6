"""A CPU whose sides take turns as they do on a GPU."""

from contextlib import AbstractContextManager, nullcontext

from evolve.worker.device_cpu import CpuDevice
from evolve.worker.process import RunnerProcess
from evolve.worker.window_cpu import CpuWindow
from evolve.worker.window_cuda import CudaWindow


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
