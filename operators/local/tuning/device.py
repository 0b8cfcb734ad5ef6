"""A device's resources for a program, as far as the judge has reported."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one device; if nothing is known, those of an H100 or H200, than which few have more.

    Attributes:
        shared_memory: bytes that a block may have.
        registers: of 32 bits that a thread may have.
        warp: threads.
        threads: of a block, at most.
        multiprocessors: of the device.
        sums: values that products may keep beside the registers of a block's threads.
    """

    shared_memory: int = 232_448
    registers: int = 255
    warp: int = 32
    threads: int = 1024
    multiprocessors: int = 132
    sums: int = 0

    @classmethod
    def of(cls, device: Mapping[str, str]) -> "Limits":
        """From facts of a device (`Context.device`).

        A multiprocessor of compute capability 10 has 128 lanes by 512 columns of tensor memory for
        the sums of products (PTX ISA, "Tensor Memory"); a thread on AMD's CDNA has 512 registers.
        """
        known = cls()
        return cls(
            shared_memory=int(device.get("shared_memory_bytes", known.shared_memory)),
            registers=512 if device.get("arch", "").startswith("gfx9") else known.registers,
            warp=int(device.get("warp_size", known.warp)),
            multiprocessors=int(device.get("multiprocessors", known.multiprocessors)),
            sums=128 * 512 if device.get("capability", "").startswith("10.") else 0,
        )
