"""Trees of tensors laid out in one piece of memory, so that whole sets of inputs travel as bytes.

A buffer is the judge's own copy. A runner gets to see a copy that is thrown away after use: in
memory that two processes see, one could leave data for the other.
"""

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from evolve.worker.ipc import task_classes
from evolve.worker.ipc.pytree import SPARSE, assembled, components

ALIGNMENT = 256
GUARD_BYTES = 4096  # behind every storage, NaN in each floating type: reads beyond the end show
GUARD = 0xFF


@dataclass(slots=True, eq=False)
class TensorBuffer:
    """`pytree`, each a pickle whose tensors are places in `memory` (bytes on the device)."""

    trees: tuple[bytes, ...]
    memory: torch.Tensor

    @property
    def size(self) -> int:
        """Bytes."""
        return self.memory.numel()

    def tree(self, at: int = 0) -> Any:
        """One of the trees; its tensors are views of `memory`, not to be written to."""
        return unpack(self.trees[at], self.memory)

    def bounds(self) -> list[int]:
        """For each tree the byte up to which it and those before it need the memory, guards too.

        Nothing that only later trees need lies below.
        """
        found, end = [], 0
        for tree in self.trees:
            end = max(end, _Ends(tree).last)
            found.append(min(_aligned(end + GUARD_BYTES), self.size))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A buffer as a runner sees it: a descriptor to map, and its content.

    On the CPU, runners map privately, and `memory` is the buffer's own; on a GPU runners map
    `memory`, and it changes when the candidate writes to its inputs.
    """

    fd: int
    buffer: TensorBuffer
    memory: torch.Tensor

    @property
    def size(self) -> int:
        """Bytes to map."""
        return self.memory.numel()

    @property
    def trees(self) -> tuple[bytes, ...]:
        return self.buffer.trees


@dataclass(frozen=True, slots=True)
class Outline:
    """A tree of a buffer of `size` bytes, without the buffer: all but the values."""

    tree: bytes
    size: int

    def without_values(self, place: torch.device) -> tuple[Any, list[Any]]:
        """Torch's mode for code that asks for no value (`FakeTensorMode`), and the tree made in it.

        Its tensors take no memory, nor do tensors made in that mode. Who asks for a value, or for
        the address of one, gets an exception.
        """
        from torch._functorch import config
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        # An address would be that of nothing, and a read there ends the process.
        with config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):
            mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        with mode:
            memory = torch.empty(self.size, device=place, dtype=torch.uint8)
            return mode, list(unpack(self.tree, memory))


def buffer_of(
    trees: list[Any], allocate: Callable[[int], torch.Tensor], lone_bytes: int
) -> TensorBuffer:
    """Trees, which are taken out of the list, as a buffer.

    A single storage of `lone_bytes` or more stays where it is, and becomes the buffer's memory: its
    copy would take as much again. It has no guard behind it.

    Args:
        trees: What it is made of.
        allocate: Gives memory of so many bytes or more.
        lone_bytes: See above.
    """
    packed = Packed(trees)
    trees.clear()
    memory = packed.lone_storage(lone_bytes)
    if memory is None:
        memory = allocate(packed.size)
        packed.write(memory)
    return TensorBuffer(packed.trees, memory)


def _holders(raw: torch.Tensor) -> int:
    return torch._C._storage_Use_Count(raw.untyped_storage()._cdata)


class Packed:
    """Trees, pickled, with the places of their storages: each once however many tensors view it."""

    def __init__(self, trees: list[Any]) -> None:
        self.size = 0
        self._storages: list[tuple[int, torch.Tensor]] = []
        self._offsets: dict[int, int] = {}
        self.trees = tuple(self._pack(tree) for tree in trees)

    def write(self, memory: torch.Tensor) -> None:
        """Copy every storage to its place in `memory` (uint8, at least `size`), guards between.

        Nothing stays of what the memory held: a runner sees all of it.
        """
        starts = [offset for offset, _ in self._storages]
        ends = [offset + raw.nbytes for offset, raw in self._storages]
        for kind in (torch.int64, torch.uint8):  # whole words where they fit: fewer launches
            _copy_each(memory, [(at, raw) for at, raw in self._storages if raw.dtype is kind], kind)
        gaps = [(end, start - end) for end, start in zip(ends, starts[1:], strict=False)]
        guard = memory.new_full((max((size for _, size in gaps), default=0),), GUARD)
        guards = {size: guard[:size] for size in {size for _, size in gaps}}
        _copy_each(memory, [(at, guards[size]) for at, size in gaps], torch.uint8)
        memory[ends[-1] if ends else 0 :].fill_(GUARD)

    def lone_storage(self, least: int) -> torch.Tensor | None:
        """The only storage, if it has so many bytes and nothing else holds it.

        Another holder could change its values: a task's file may give the same tensor each time.
        """
        if len(self._storages) != 1:
            return None
        (_, raw), new = self._storages[0], torch.empty(1)
        fits = raw.nbytes >= least and raw.nbytes % ALIGNMENT == 0
        return raw.view(torch.uint8) if fits and _holders(raw) == _holders(new) else None

    def _pack(self, tree: Any) -> bytes:
        buffer = io.BytesIO()
        _Packer(buffer, self._place).dump(tree)
        return buffer.getvalue()

    def _place(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._offsets:
            self._offsets[key] = self.size
            size = storage.nbytes()
            kind = torch.uint8 if size % torch.int64.itemsize else torch.int64
            raw = torch.empty(0, dtype=kind, device=storage.device).set_(storage)
            self._storages.append((self.size, raw))
            self.size += _aligned(size + GUARD_BYTES)
        start = self._offsets[key] + tensor.storage_offset() * tensor.element_size()
        return start, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def _copy_each(
    memory: torch.Tensor, parts: list[tuple[int, torch.Tensor]], kind: torch.dtype
) -> None:
    """Copy tensors of a kind to bytes of `memory`, in a few launches however many there are.

    A block of small calls has hundreds: one by one, their launches took longer than the copies.
    """
    parts = [(start, raw) for start, raw in parts if raw.numel()]
    if not parts:
        return
    sizes, end = [], 0
    for start, raw in parts:
        sizes += [start // kind.itemsize - end, raw.numel()]
        end = start // kind.itemsize + raw.numel()
    places = memory[: end * kind.itemsize].view(kind).split(sizes)[1::2]
    torch._foreach_copy_(places, [raw for _, raw in parts])


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, place: Callable[[torch.Tensor], tuple[Any, ...]]) -> None:
        super().__init__(file, protocol=5)
        self._place = place

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        is_dense = isinstance(value, torch.Tensor) and value.layout not in SPARSE
        return self._place(value) if is_dense else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return assembled, (value.layout, tuple(value.shape), *components(value.detach()))
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return _named_tuple, (type(value), list(value))
        return NotImplemented


def _named_tuple(kind: Any, values: list[Any]) -> Any:
    """One of these values, whatever its constructor takes; in a process that may lack its class."""
    return kind._make(values) if hasattr(kind, "_make") else kind(*values)


def pickled_tensors(tree: Any) -> int:
    """How many different tensors there are in an object, wherever in it they are.

    Raises:
        pickle.PicklingError, AttributeError, TypeError: it cannot be pickled.
    """
    found: set[int] = set()
    kept: list[torch.Tensor] = []  # or another could have its identity

    class Counter(pickle.Pickler):
        def persistent_id(self, value: Any) -> int | None:
            if not isinstance(value, torch.Tensor):
                return None
            found.add(id(value))
            kept.append(value)
            return id(value)

    Counter(io.BytesIO(), protocol=5).dump(tree)
    return len(found)


class _Ends(pickle.Unpickler):
    """Reads a tree for the end of its `last` tensor, in bytes; makes no tensors."""

    def __init__(self, blob: bytes) -> None:
        super().__init__(io.BytesIO(blob))
        self.last = 0
        self.load()

    def find_class(self, module: str, name: str) -> Any:
        is_sparse = (module, name) == (assembled.__module__, assembled.__name__)
        return (lambda *_: None) if is_sparse else super().find_class(module, name)

    def persistent_load(self, place: tuple[Any, ...]) -> None:
        start, dtype, shape, stride = place
        self.last = max(self.last, start + span(shape, stride) * dtype.itemsize)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: torch.Tensor) -> None:
        super().__init__(file)
        self._memory = memory

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ModuleNotFoundError, AttributeError):  # it is of a task's file
            return task_classes.stand_in(name)

    def persistent_load(self, place: tuple[Any, ...]) -> torch.Tensor:
        start, dtype, shape, stride = place
        return view_bytes(self._memory, start, dtype, shape, stride)


def unpack(blob: bytes, memory: torch.Tensor) -> Any:
    """A tree of a buffer, its tensors being views into `memory`."""
    return _Unpacker(io.BytesIO(blob), memory).load()


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
