"""Launchers without zygotes of their own: each would import torch, which takes more than a test."""

from evolve.worker.devices.base import Device
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.processes.launcher import Key, Launcher
from evolve.worker.runner.zygote import Zygote
from evolve.worker.sandbox.policy import ALL_MECHANISMS


class Borrowing(Launcher):
    """Its runners are confined as it says, and forked from the zygotes of another launcher.

    Args:
        lender: The other, which outlives it, for a device with the same variables.
        device: That candidates run on.
        allowed: Mask of sandbox mechanisms to use.
        require: The weakest sandbox tier to be content with.
        lock: Of the device.
    """

    def __init__(
        self,
        lender: Launcher,
        device: Device,
        allowed: int = ALL_MECHANISMS,
        require: str = "none",
        lock: HostLock | None = None,
    ) -> None:
        super().__init__(device, require, (), int(allowed), lock=lock)
        assert device.variables == lender._device.variables
        self._lender = lender

    def _zygote(self, key: Key) -> Zygote:
        return self._lender._zygote(key)
