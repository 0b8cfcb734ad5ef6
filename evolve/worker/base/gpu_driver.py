"""The few calls of the GPU's driver that torch has no door to: device memory that travels as an fd.

Memory made here is a physical allocation of its own (`cuMemCreate`). Its descriptor can be sent to
another process over a socket and mapped there, across namespaces and users; legacy IPC handles need
shared ones. Source: CUDA driver API, virtual memory management; the HIP runtime has the same calls
under other names (`driver_calls`).
"""

import contextlib
import ctypes
import functools
import os
from dataclasses import dataclass
from typing import Any

import torch

from evolve.worker.base.driver_calls import driver_calls

_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_POSIX_FD = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ
# Left free for memory that processes take by themselves and that cannot be returned to them:
# contexts, and workspaces of vendors' libraries (an H200 with eight tasks at once had none left for
# cuBLAS).
_OTHERS_BYTES = 2 << 30


class DriverError(OSError):
    """The driver refused a call."""


class _Location(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """`CUmemAllocationProp`."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handle_kinds", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """`CUmemAccessDesc`."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(driver_calls().path())


def _call(name: str, *arguments: Any) -> None:
    """A call by its name without the driver's prefix."""
    driver = driver_calls()
    code = getattr(_library(), f"{driver.prefix}{name}")(*arguments)
    if code:
        text = driver.error_text(_library(), code) or b"?"
        raise DriverError(code, f"{driver.prefix}{name}: {text.decode()}")


def _properties() -> _Properties:
    device = torch.cuda.current_device()
    return _Properties(_PINNED, _POSIX_FD, _Location(_ON_DEVICE, device), None)


def granularity() -> int:
    """Sizes of shared memory are multiples of this many bytes (2 MB on known devices)."""
    size = ctypes.c_size_t()
    _call("MemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(_properties()), 0)
    return size.value


@dataclass(slots=True, eq=False)
class Mapping:
    """Device memory in this process's address space."""

    address: int
    size: int
    handle: int

    def tensor(self) -> torch.Tensor:
        """All of it as bytes; valid until `close`."""
        return torch.as_tensor(self, device="cuda")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False),
                "version": 3}  # fmt: skip

    def close(self) -> None:
        """Unmap; the memory lives as long as any process or descriptor refers to it."""
        if not self.address:
            return
        pointer, size = ctypes.c_uint64(self.address), ctypes.c_size_t(self.size)
        self.address = 0
        _call("MemUnmap", pointer, size)
        _call("MemAddressFree", pointer, size)
        _call("MemRelease", ctypes.c_uint64(self.handle))


def allocate(size: int) -> tuple[Mapping, int]:
    """New memory of at least `size` bytes, mapped here, and a descriptor to hand on.

    Raises:
        DriverError: there is not so much memory left.
    """
    step = granularity()
    size = -(-max(size, 1) // step) * step
    free, _ = torch.cuda.mem_get_info()
    if free < size + _OTHERS_BYTES:
        torch.cuda.empty_cache()  # torch keeps unused memory
    handle = _create(size)
    fd = ctypes.c_int(-1)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(_call, "MemRelease", handle)
        _call("MemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX_FD,
              ctypes.c_uint64(0))  # fmt: skip
        on_failure.callback(os.close, fd.value)
        os.set_inheritable(fd.value, False)
        mapping = _mapped(handle.value, size)
        on_failure.pop_all()
    return mapping, fd.value


def _create(size: int) -> ctypes.c_uint64:
    handle = ctypes.c_uint64()
    _call("MemCreate", ctypes.byref(handle), ctypes.c_size_t(size),
          ctypes.byref(_properties()), ctypes.c_uint64(0))  # fmt: skip
    return handle


def attach(fd: int, size: int) -> Mapping:
    """Memory that another process has sent, mapped here; its descriptor may be closed then."""
    handle = ctypes.c_uint64()
    _import(handle, fd)
    return _mapped(handle.value, size)


def _import(handle: ctypes.c_uint64, fd: int) -> None:
    into, held = ctypes.byref(handle), ctypes.c_int(fd)
    if driver_calls().imports_by_address:
        # By address first: HIP reports an error if it takes the address for a descriptor, and
        # crashes if it takes the descriptor for an address.
        with contextlib.suppress(DriverError):
            _call("MemImportFromShareableHandle", into, ctypes.byref(held), _POSIX_FD)
            return
    _call("MemImportFromShareableHandle", into, ctypes.c_void_p(fd), _POSIX_FD)


def _mapped(handle: int, size: int) -> Mapping:
    address = _reserved(size)
    _map(address, size, handle)
    return Mapping(address, size, handle)


def _reserved(size: int) -> int:
    """Addresses with nothing behind them."""
    address = ctypes.c_uint64()
    _call("MemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0),
          ctypes.c_uint64(0), ctypes.c_uint64(0))  # fmt: skip
    return address.value


def _map(address: int, size: int, handle: int) -> None:
    where, length = ctypes.c_uint64(address), ctypes.c_size_t(size)
    _call("MemMap", where, length, ctypes.c_size_t(0), ctypes.c_uint64(handle),
          ctypes.c_uint64(0))  # fmt: skip
    access = _Access(_Location(_ON_DEVICE, torch.cuda.current_device()), _READ_WRITE)
    _call("MemSetAccess", where, length, ctypes.byref(access), ctypes.c_size_t(1))


def wait_value(address: int, value: int) -> None:
    """Have the default stream wait until the 32-bit word there has this value."""
    driver = driver_calls()
    _call(driver.wait_call, ctypes.c_void_p(0), ctypes.c_uint64(address),
          ctypes.c_uint32(value), ctypes.c_uint(_EQUAL), *driver.wait_extra)  # fmt: skip


def pci_address() -> str:
    """Of the GPU on the bus, such as `0000:c1:00.0`."""
    text = ctypes.create_string_buffer(64)
    _call("DeviceGetPCIBusId", text, len(text), torch.cuda.current_device())
    return text.value.decode().lower()
