"""The zygote that has PyTorch's compiler, where torch sees a GPU."""

from evolve.languages.torch import TORCH
from evolve.worker.base.interpreter import WITH_COMPILER, start
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.launcher import Launcher


def test_it_has_one_thread_and_forks():
    launcher = Launcher(CpuDevice(), "none", (), ahead=[start({}), start(WITH_COMPILER)])
    try:
        with launcher.start(TORCH, compiles=True):
            assert [zygote.threads() for zygote in launcher.zygotes()] == [1]
    finally:
        launcher.close()
