"""How a runner uses a GPU: outputs in memory that its referee reads, inputs that come late."""

import contextlib
import ctypes
import importlib
from collections import deque
from collections.abc import Iterator

import torch

from evolve.worker import cuda_driver, queues
from evolve.worker.cuda_driver import Mapping

HELD = 2  # inputs of so many calls stay mapped


class CudaAccess:
    """Opens the one GPU that the process may see, with all of its queues or one."""

    def __init__(self, all_queues: bool) -> None:
        with queues.opening(all_queues):
            torch.cuda.init()
            self._spark = torch.zeros(1, device="cuda")  # makes the context
        with contextlib.suppress(ImportError):
            importlib.import_module("triton.runtime").driver.active.utils  # noqa: B018 (loads it)
        self.place = torch.device("cuda", torch.cuda.current_device())
        self._inputs: deque[Mapping] = deque()
        self._place: cuda_driver.Place | None = None
        self._pool: torch.cuda.MemPool | None = None
        self._routing = contextlib.ExitStack()  # of allocations to the pool
        self._kept: tuple[object, ...] = ()

    def use_pool(self, fd: int, size: int, library: str) -> int:
        """Have torch allocate from this memory; gives its address."""
        pool = cuda_driver.attach(fd, size)
        ctypes.CDLL(library).evolve_pool(ctypes.c_uint64(pool.address), ctypes.c_uint64(size))
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            library, "evolve_allocate", "evolve_free"
        )
        self._pool = torch.cuda.MemPool(allocator.allocator())
        self._routing.enter_context(torch.cuda.use_mem_pool(self._pool))
        self._kept = (pool, allocator)  # for the life of the process
        return pool.address

    @contextlib.contextmanager
    def lent_pool(self) -> Iterator[torch.cuda.MemPool]:
        """The pool, for a recording: what is recorded would else be allocated past it.

        torch lets nobody else allocate from a pool that is recorded to.
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
        while len(self._inputs) >= HELD:
            self._inputs.popleft().close()
        self._inputs.append(cuda_driver.attach(fd, size))
        return self._inputs[-1].tensor()

    def stage(self, fd: int, size: int) -> torch.Tensor:
        """Addresses with memory of no content, so that tensors can be made over them."""
        self._place = cuda_driver.Place(size)
        self.wake()  # the GPU now works for this process, which the clock need not pay for
        torch.cuda.synchronize()
        return self._place.tensor()

    def wake(self) -> None:
        """Have the GPU work for this process, as little as it can."""
        self._spark.add_(1)

    def reveal(self, fd: int) -> None:
        """The inputs take the place of that memory; nothing is copied."""
        if self._place is not None and fd >= 0:
            self._place.show(fd)

    def finish(self) -> None:
        torch.cuda.synchronize()

    def reserve(self, size: int) -> None:
        """The first block does that: torch keeps what it has been given."""

    def drop(self) -> None:
        """Inputs of earlier calls go too: they may be of gigabytes, and are of no further use."""
        while self._inputs:
            self._inputs.popleft().close()
        if self._place is not None:
            self._place.close()
            self._place = None
