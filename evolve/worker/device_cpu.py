"""All that is particular to the CPU as the device under test."""

import os
import platform
from pathlib import Path

from evolve.core.program import Language
from evolve.worker import syscalls


class CpuDevice:
    """Candidates run on all cores that this process may use; tensors travel in shared memory.

    The numbers are in seconds and bytes; `half_width` is the relative half-width of an interval at
    which timing may stop.
    """

    name = "cpu"
    half_width = 0.03
    block_s = 0.008  # short, so that what drifts on the host is shared by the sides
    memory = 6 << 30
    limit_address_space = True

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def device_class(self) -> str:
        """Times of one class are comparable: the model of the processor, and its cores in use."""
        return f"cpu: {_cpu_model()}, {self.cores} cores"

    @property
    def slots(self) -> int:
        """Evaluations under way at once: one may compile while another is judged."""
        return min(4, max(2, self.cores // 2))

    def can_time(self, language: Language) -> bool:
        """Triton runs in its interpreter here, which says nothing about speed."""
        return language is not Language.TRITON

    def environment(self, language: Language) -> dict[str, str]:
        """What has to be set before a program's libraries are imported."""
        return {"TRITON_INTERPRET": "1"} if language is Language.TRITON else {}

    def read(self, pid: int, address: int, into: int, size: int) -> None:
        """Copy bytes of a runner's memory into ours. OSError where that cannot be done."""
        syscalls.read_memory(pid, address, into, size)

    def describe(self) -> dict[str, str]:
        """Facts of the hardware that a measurement depends on."""
        return {"device": _cpu_model(), "cores": str(self.cores)}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
