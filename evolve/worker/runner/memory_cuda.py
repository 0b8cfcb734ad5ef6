"""How a runner uses a GPU: in memory of its judge's, which it maps as long as it lives."""

import contextlib
import importlib
from collections.abc import Iterator

import torch

from evolve.worker.base import gpu_driver
from evolve.worker.base.gpu_driver import Mapping
from evolve.worker.ipc import native
from evolve.worker.ipc.signals import Calls, Signals
from evolve.worker.runner import hw_queues

GATE_BYTES = 4096  # behind the inputs, for a word that says that they are there


def gate_of(address: int, size: int) -> int:
    """The place of that word, in an arena of inputs at this address."""
    return address + size - GATE_BYTES


class CudaAccess:
    """Opens the one GPU that the process may see, with all of its queues or one.

    Attributes:
        inputs: the bytes where inputs come.
        limit: bytes for tensors.
    """

    def __init__(self, all_queues: bool) -> None:
        with hw_queues.opening(all_queues):
            torch.cuda.init()
            self._spark = torch.zeros(1, device="cuda")  # makes the context
        with contextlib.suppress(ImportError):
            importlib.import_module("triton.runtime").driver.active.utils  # noqa: B018 (loads it)
        self.place = torch.device("cuda", torch.cuda.current_device())
        self.inputs = torch.empty(0, dtype=torch.uint8, device=self.place)
        self.limit = 0
        self._arena: Mapping | None = None
        self._signals: Signals | None = None
        self._spin_s = 0.0
        self._pool: torch.cuda.MemPool | None = None
        self._routing = contextlib.ExitStack()  # of allocations to the pool
        self._kept: tuple[object, ...] = ()

    def use_pool(self, fd: int, size: int, limit: int, library: str) -> int:
        """Have torch allocate from this memory, `limit` bytes of it; gives its address."""
        pool = gpu_driver.attach(fd, size)
        self._library = native.load(library)
        self._library.evolve_pool(pool.address, limit)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            library, "evolve_allocate", "evolve_free"
        )
        self._pool = torch.cuda.MemPool(allocator.allocator())
        self._routing.enter_context(torch.cuda.use_mem_pool(self._pool))
        # The pool is of this thread, and a backward pass would allocate in another.
        torch.autograd.set_multithreading_enabled(False)
        self.limit = limit
        self._kept = (pool, allocator)  # for the life of the process
        return pool.address

    def use_inputs(self, fd: int, size: int) -> int:
        """Map this memory in the place of the last; gives its address."""
        torch.cuda.synchronize()
        if self._arena is not None:
            self._arena.close()
        self._arena = gpu_driver.attach(fd, size)
        self.inputs = self._arena.tensor()
        return self._arena.address

    def use_signals(self, fd: int, spin_s: float) -> None:
        """Map the page that tells of windows, and spin so long for one before sleeping."""
        self._signals, self._spin_s = Signals(fd), spin_s

    def await_go(self, sequence: int, seconds: float) -> bool:
        """Wait for a window to begin; whether it did in that time."""
        assert self._signals is not None
        return self._signals.await_go(self._library, sequence, self._spin_s, seconds)

    def calls(self, sequence: int, seconds: float) -> Calls:
        """The calls of this window, as they are handed over."""
        assert self._signals is not None
        return Calls(self._signals, self._library, sequence, self._spin_s, seconds)

    def signal_done(self, sequence: int, outputs: int, seconds: float) -> None:
        """Say that its calls are done, and gave so many outputs."""
        assert self._signals is not None
        self._signals.finish(self._library, sequence, outputs, seconds)

    def await_inputs(self, sequence: int) -> None:
        """Have the default stream wait until the inputs of this window are there."""
        assert self._arena is not None
        gpu_driver.wait_value(gate_of(self._arena.address, self._arena.size), sequence)

    @contextlib.contextmanager
    def lent_pool(self) -> Iterator[torch.cuda.MemPool]:
        """The pool, for a recording: recorded calls would otherwise allocate outside of it.

        torch lets no other thread allocate from a pool that is recorded to.
        """
        assert self._pool is not None
        self._routing.close()
        try:
            yield self._pool
        finally:
            # A recording that was broken off is left under way.
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(self.place.index, self._pool.id)
            self._routing.enter_context(torch.cuda.use_mem_pool(self._pool))

    def open(self, fd: int, size: int) -> torch.Tensor:
        return self.inputs[:size]

    def stage(self, fd: int, size: int, written: bool) -> torch.Tensor:
        return self.inputs[:size]

    def wake(self) -> None:
        """Have the GPU work for this process, as little as it can."""
        self._spark.add_(1)

    def finish(self) -> None:
        torch.cuda.synchronize()

    def reserve(self, size: int) -> None:
        """The first block does that: torch keeps its memory."""

    def drop(self) -> None:
        """Memory for inputs stays."""
