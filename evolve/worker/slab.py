"""Tensors in sealed shared memory: trees of inputs that many processes read and none can change.

A slab is a memfd with the storage of every tensor of some trees. The referee writes and seals it;
a runner maps it privately, so that a write of the candidate's stays in the candidate's process.
"""

import contextlib
import fcntl
import io
import mmap
import os
import pickle
from dataclasses import dataclass
from typing import Any

import torch

ALIGNMENT = 256
_SEALS = fcntl.F_ADD_SEALS if hasattr(fcntl, "F_ADD_SEALS") else 1033
_SEAL_ALL = 0x0001 | 0x0002 | 0x0004 | 0x0008  # seal, shrink, grow, write
_MADV_POPULATE_READ = 22


@dataclass(slots=True, eq=False)
class Slab:
    """Sealed memory with `trees`, each a pickle whose tensors are places in the memory.

    `memory` is the referee's own read-only view of all bytes. `fd` belongs to the slab.
    """

    fd: int
    size: int
    trees: tuple[bytes, ...]
    memory: torch.Tensor

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


def make_slab(name: str, trees: list[Any]) -> Slab:
    """Copy the tensors of the trees into new sealed memory."""
    packer = _Packer()
    blobs = tuple(packer.pack(tree) for tree in trees)
    size = max(packer.size, mmap.PAGESIZE)
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as writable:
        view = torch.frombuffer(writable, dtype=torch.uint8)
        for offset, storage in packer.storages:
            view[offset : offset + storage.numel()] = storage
        del view
    fcntl.fcntl(fd, _SEALS, _SEAL_ALL)
    return Slab(fd, size, blobs, map_slab(fd, size))


def map_slab(fd: int, size: int) -> torch.Tensor:
    """The bytes of a slab, privately mapped with all pages present; writes stay in the process."""
    mapping = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with contextlib.suppress(OSError):  # before Linux 5.14 the pages come with the first touch
        mapping.madvise(_MADV_POPULATE_READ)
    return torch.frombuffer(mapping, dtype=torch.uint8)


def unpack(blob: bytes, memory: torch.Tensor) -> Any:
    """A tree of a slab, its tensors being views into `memory`."""
    return _Unpacker(io.BytesIO(blob), memory).load()


class _Packer:
    """Lays out storages, each once however many tensors view it."""

    def __init__(self) -> None:
        self.size = 0
        self.storages: list[tuple[int, torch.Tensor]] = []
        self._offsets: dict[int, int] = {}

    def pack(self, tree: Any) -> bytes:
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, protocol=5)
        pickler.persistent_id = self._place  # type: ignore[method-assign]
        pickler.dump(tree)
        return buffer.getvalue()

    def _place(self, value: Any) -> tuple[Any, ...] | None:
        if not isinstance(value, torch.Tensor):
            return None
        value = value.detach()
        storage = value.untyped_storage()
        key = storage._cdata
        if key not in self._offsets:
            self._offsets[key] = self.size
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.storages.append((self.size, raw))
            self.size += -(-max(raw.numel(), 1) // ALIGNMENT) * ALIGNMENT
        start = self._offsets[key] + value.storage_offset() * value.element_size()
        return start, value.dtype, tuple(value.shape), tuple(value.stride())


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: torch.Tensor) -> None:
        super().__init__(file)
        self._memory = memory

    def persistent_load(self, place: tuple[Any, ...]) -> torch.Tensor:
        start, dtype, shape, stride = place
        return view_bytes(self._memory, start, dtype, shape, stride)


def view_bytes(
    memory: torch.Tensor,
    start: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
) -> torch.Tensor:
    """A tensor over `memory` (uint8) from byte `start` on."""
    size = span(shape, stride) * dtype.itemsize
    return memory[start : start + size].view(dtype).as_strided(shape, stride)


def span(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Elements between the first and the last of a strided tensor, both counted."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
