"""The CPU as the device under test."""

import mmap
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from evolve.core.devices import DeviceKind, device_kind_of
from evolve.core.evaluation import Status
from evolve.languages.inline import HEADERS
from evolve.worker.base import heap
from evolve.worker.base.faults import CandidateFault
from evolve.worker.build import headers
from evolve.worker.devices.cpu.window import CpuWindow
from evolve.worker.devices.window import Window
from evolve.worker.ipc.memfd import Landing, make_sealed
from evolve.worker.ipc.tensor_buffer import Shared, TensorBuffer, buffer_of
from evolve.worker.ipc.turns import Turns
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.reference.placing import CPU
from evolve.worker.sandbox import syscalls
from evolve.worker.sandbox.mappings import Mapping, mappings_of


class CpuDevice:
    """Candidates run on all cores that this process may use; tensors travel in shared memory."""

    name = "cpu"
    place = CPU
    half_width = 0.03
    spread = 0.02
    block_s = 0.006  # short, so that drift of the host affects all sides
    calls = (1, 256)
    blocks = 6
    turn_blocks = 1
    few_blocks = 6
    block_pool = 12
    judged_s = 0.4
    has_profiler = False
    has_memory_mark = True
    timing_slots = 1
    rounds = 2
    preforked = 0
    ends_alone = False
    references = 4
    compiles_aside = False
    gives_calls = True
    stack_samples = 3  # of three rounds enough to be sure of a library
    memory = 6 << 30
    limit_address_space = True
    nodes: tuple[str, ...] = ()
    other_nodes: tuple[str, ...] = ()
    block_bytes = 128 << 20
    reward_bytes = block_bytes
    pool_bytes = 0
    process_bytes = 0
    expecting_bytes = 0
    room = 0
    total_bytes = 0
    capability = 0

    def __init__(self) -> None:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.warm_bytes = min(total // 4, 3 << 30)
        self.readable: tuple[str, ...] = (str(headers.folder()),)
        self.variables = {**heap.VARIABLES, HEADERS: self.readable[0]}
        self._landings: WeakKeyDictionary[RunnerProcess, Landing] = WeakKeyDictionary()
        self._elsewhere: WeakSet[RunnerProcess] = WeakSet()
        self._turns: WeakKeyDictionary[RunnerProcess, Turns] = WeakKeyDictionary()

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def device_class(self) -> str:
        """The model of the processor, and its cores in use."""
        return f"cpu: {_cpu_model()}, {self.cores} cores"

    @property
    def kind(self) -> DeviceKind:
        return device_kind_of(self.device_class)

    @property
    def slots(self) -> int:
        """One compiles while another is checked; compilers are stopped while one is timed."""
        return min(4, self.cores)

    def describe(self) -> dict[str, str]:
        facts = {"device": _cpu_model(), "cores": str(self.cores), "vector_units": _vector_units()}
        return {**facts, "caches": caches} if (caches := _caches()) else facts

    def lock_pages(self, sizes: list[int]) -> bool:
        """Outputs are on the host anyway."""
        return False

    def make_buffer(self, trees: list[Any]) -> TensorBuffer:
        return buffer_of(trees, _bytes, sys.maxsize)

    @contextmanager
    def share(self, process: RunnerProcess, buffer: TensorBuffer) -> Iterator[Shared]:
        fd = make_sealed(buffer.memory)
        try:
            yield Shared(fd, buffer, buffer.memory)
        finally:
            os.close(fd)

    def landing(self, process: RunnerProcess, size: int) -> Landing:
        """A place for inputs of so many bytes in this process; the last one if large enough."""
        known = self._landings.get(process)
        if known is not None and known.size >= size and process not in self._elsewhere:
            return known
        landing = self._landings[process] = Landing(size)
        process.on_close(landing.close)
        return landing

    def land_elsewhere(self, process: RunnerProcess) -> None:
        """Each block in new memory from now on."""
        self._elsewhere.add(process)

    def turns(self, process: RunnerProcess) -> Turns:
        """The page by which calls are handed over to this process."""
        if process not in self._turns:
            turns = self._turns[process] = Turns()
            process.on_close(turns.close)
        return self._turns[process]

    def prepare(self, process: RunnerProcess, all_queues: bool = False) -> None:
        """A forked process is ready."""

    def connect(self, process: RunnerProcess, tensors: int = 0) -> None:
        word = torch.zeros(8, dtype=torch.uint8)
        self.read(process, [process.readable_at], [word])

    def read(
        self,
        process: RunnerProcess,
        addresses: Sequence[int],
        into: Sequence[torch.Tensor],
        aliased: Sequence[int] = (),
    ) -> None:
        for address, ours in zip(addresses, into, strict=True):
            syscalls.read_memory(process.pid, address, ours.data_ptr(), ours.numel())

    def require_modest(self, process: RunnerProcess) -> None:
        """The kernel's own limits see to that."""

    def inputs_in(self, process: RunnerProcess, shared: Shared) -> list[Mapping]:
        return mappings_of(process.pid, shared.fd)

    def inputs_changed(self, process: RunnerProcess, shared: Shared, address: int) -> bool:
        """Whether a private view of its inputs, of all that it has, differs from the judge's.

        Where they are is the kernel's word, not the candidate's.
        """
        views = mappings_of(process.pid, shared.fd)
        if sum(view.end - view.start for view in views) < shared.size:
            return True
        return any(self._differs(process, view, shared.memory) for view in views)

    def inputs_now(self, process: RunnerProcess, shared: Shared, address: int) -> torch.Tensor:
        """Of the mapping at that address, by the kernel's word."""
        start = self.inputs_at(process, shared.fd, shared.size, address)
        seen = torch.empty_like(shared.memory)
        self.read(process, [start], [seen])
        return seen

    def inputs_at(self, process: RunnerProcess, fd: int, size: int, address: int = 0) -> int:
        """Where a runner has its inputs; where it has them twice, the place that it names."""
        whole = [at.start for at in mappings_of(process.pid, fd)
                 if not at.offset and at.end - at.start >= size]  # fmt: skip
        if not whole or (address and address not in whole):
            raise CandidateFault(Status.MUTATED_INPUT, "its inputs are no longer where they were")
        return address or whole[0]

    def _differs(self, process: RunnerProcess, view: Mapping, memory: torch.Tensor) -> bool:
        own = memory[view.offset : view.offset + view.end - view.start]
        seen = torch.empty_like(own)
        try:
            self.read(process, [view.start], [seen])
        except OSError:
            return True
        return not syscalls.same_bytes(seen.data_ptr(), own.data_ptr(), own.numel())

    def window(self) -> Window:
        return CpuWindow(self)

    def require_health(self) -> None:
        """A processor that has gone bad would not run this either."""

    def release(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing was put anywhere."""

    def is_idle(self) -> bool:
        """Stopped processes use no cores."""
        return True

    def others(self) -> frozenset[int]:
        """Cores are shared by design; a lock keeps timing apart from other work of judges."""
        return frozenset()


def _bytes(size: int) -> torch.Tensor:
    return torch.empty(max(size, mmap.PAGESIZE), dtype=torch.uint8)


def _vector_units() -> str:
    """The widest instructions that PyTorch uses here: `AVX2`, `AVX512`, `DEFAULT`, ..."""
    return str(torch.backends.cpu.get_cpu_capability())


def _caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> str:
    """The first core's caches for data as the kernel lists them, e.g. `L1 32K, L2 512K, L3 32M`."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size = (
                (index / name).read_text().strip() for name in ("type", "level", "size")
            )
        except OSError:
            continue
        if kind != "Instruction":
            found[f"L{level}"] = _megabytes(size)
    return ", ".join(f"{level} {size}" for level, size in found.items())


def _megabytes(size: str) -> str:
    """`1M` for `1024K`."""
    kilobytes = size.removesuffix("K")
    if not kilobytes.isdigit() or kilobytes == size or int(kilobytes) % 1024:
        return size
    return f"{int(kilobytes) // 1024}M"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
