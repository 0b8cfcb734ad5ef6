"""A GPU as the device under test (CUDA)."""

import contextlib
import importlib
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.program import Language
from evolve.worker import cuda_driver, nvml, pagelocked, procfs
from evolve.worker.access_cuda import HELD
from evolve.worker.cores import ClockCores
from evolve.worker.guard import descendants
from evolve.worker.infra import InfraFault
from evolve.worker.locks import DriverLock
from evolve.worker.pagelocked import PageLocked
from evolve.worker.pool_allocator import build_allocator
from evolve.worker.process import RunnerProcess
from evolve.worker.slab import Packed, Shared, Slab
from evolve.worker.window import Window
from evolve.worker.window_cuda import CudaWindow
from evolve.worker.wiping import WIPING

_POOL_SHARE = 60  # a runner's tensors get one in so many bytes of the device
_BLOCK_SHARE = 42
_REWARD_SHARE = 80
_WARM_SHARE = 8
_REFEREE_SHARE = 0.72  # at most: what it does not use the runners may have
_EXPECTING_SHARE = 14
_LITTLE_BYTES = 64 << 20  # 3 GiB are 7 ms of the driver, these 0.3 (two H200)
_ROOM_SHARE = 0.6  # beside that, what stays warm twice (inputs, references), and spares' contexts
_HAS_TF32 = 80  # capability
_QUIET_TRIES = 5
_QUIET_FACTOR = 4.0  # an idle device answers within so many times its usual time
_CONNECT_S = 60.0
# Expected values of large tasks leave no room for holes between them. And the host's pages are
# locked by several threads: 7.5 GiB in 1.1 s instead of 3.3 (beside an H200).
_ALLOCATOR = (
    "expandable_segments:True,pinned_use_cuda_host_register:True,pinned_num_register_threads:8"
)
_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@dataclass(frozen=True, slots=True)
class _Pool:
    """Memory of one runner's tensors: our view of it, and where the runner says it maps it."""

    mapping: cuda_driver.Mapping
    memory: torch.Tensor
    base: int


class CudaDevice:
    """One GPU. Runners see it alone; what they read they get as a copy, what they write we read.

    A runner's tensors lie in a *pool*: memory of ours that it maps and that its torch allocates
    from. So an output is read without the candidate's help, and memory that an earlier candidate
    has used is overwritten before the next gets it.

    The process has to see one GPU only (`CUDA_VISIBLE_DEVICES`).

    Raises:
        UsageError: torch sees none.
        EvaluatorUnavailable: something that the GPU service needs is missing.
    """

    half_width = 0.01
    block_s = 0.010  # against the 0.4 to 0.7 ms, give or take 0.1, that a window costs
    calls = (1, 1024)
    blocks = 8
    few_blocks = 4  # of 10 ms: 0.3 % with 4, 0.2 with 8, beside 0.5 between processes (an H200)
    block_pool = 16
    has_profiler = True
    has_memory_mark = False  # of a pool there is none, and `cudaMalloc` goes past it
    seats = (
        1  # processes open one after the other, and none while one is timed: two would both wait
    )
    sittings = 4
    spares = 6
    references = 4
    process_bytes = 512 << 20  # a context, and what is loaded into it
    compiles_aside = True  # the clock's core is its own
    glances = 0
    inputs_with_run = True
    memory = 32 << 30
    limit_address_space = False  # a CUDA context reserves far more than it uses

    def __init__(self) -> None:
        # Before torch looks.
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", _ALLOCATOR)
        if not torch.cuda.is_available():
            raise UsageError(_why_none())
        self.place = torch.device("cuda", 0)
        self._facts = facts = torch.cuda.get_device_properties(0)
        self.name = f"cuda-{facts.uuid}"
        self.total_bytes = facts.total_memory
        self.pool_bytes = _whole(facts.total_memory // _POOL_SHARE)
        self.warm_bytes = facts.total_memory // _WARM_SHARE
        self.block_bytes = facts.total_memory // _BLOCK_SHARE
        self.reward_bytes = facts.total_memory // _REWARD_SHARE
        self.expecting_bytes = facts.total_memory // _EXPECTING_SHARE
        self.room = int(_ROOM_SHARE * facts.total_memory)
        # Or what torch keeps for later would leave too little for the runners.
        torch.cuda.set_per_process_memory_fraction(_REFEREE_SHARE)
        self._folder = tempfile.TemporaryDirectory(prefix="evolve-cuda-")
        Path(self._folder.name).chmod(0o755)
        self.readable: tuple[str, ...] = (self._folder.name,)
        cache = f"{self._folder.name}/triton"
        with ThreadPoolExecutor(1) as pool:  # both wait for a compiler
            library = pool.submit(build_allocator, Path(self._folder.name))
            try:
                _build_triton_driver(cache)
            finally:  # says best what a missing compiler means
                self._library = library.result()
        self._pools: dict[RunnerProcess, _Pool] = {}
        self._page_locked = PageLocked()
        pagelocked.buffer(1 << 20)  # starts torch's threads for it, on all cores
        self._probe = torch.arange(1 << 20, device=self.place)
        self._answer = int(self._probe.sum())
        self._usual_answer_s = min(self._answer_s() for _ in range(9))
        node = nvml.node_of(str(facts.uuid))
        self.nodes = tuple(path for path in (node, *_NODES) if Path(path).exists())
        self.driver = DriverLock("cuda")
        self.clock_cores = ClockCores(os.sched_getaffinity(0))
        self.capability = 10 * facts.major + facts.minor
        self.variables = {
            "CUDA_VISIBLE_DEVICES": f"GPU-{facts.uuid}",
            "CUDA_MODULE_LOADING": "LAZY",
            "TRITON_CACHE_DIR": cache,
            "TRITON_CACHE_AUTOTUNING": "1",  # what one process has tuned the next need not
        }

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def device_class(self) -> str:
        """The model of the GPU."""
        return f"cuda: {self._facts.name}"

    @property
    def slots(self) -> int:
        """Compiling uses the CPU's cores; on the GPU, checks share it and timing has it alone."""
        return min(8, max(2, self.cores // 2))

    def can_time(self, language: Language) -> bool:
        return True

    def refuses(self, language: Language) -> str:
        if language is Language.CPP:
            return "C++ kernels run on device=cpu; for a GPU write Triton or CUDA C++"
        return ""

    def environment(self, language: Language) -> dict[str, str]:
        return {}

    def describe(self) -> dict[str, str]:
        facts = self._facts
        # Torch's stubs leave the larger limit out, and some builds the attribute.
        shared = getattr(facts, "shared_memory_per_block_optin", facts.shared_memory_per_block)
        return {
            "device": facts.name,
            "capability": f"{facts.major}.{facts.minor}",
            "multiprocessors": str(facts.multi_processor_count),
            "shared_memory_bytes": str(shared),
            "warp_size": str(facts.warp_size),
            "memory_bytes": str(facts.total_memory),
            "eager_convolutions": self._eager_convolutions,
            "cuda": torch.version.cuda or "",
            "driver": nvml.driver_version(),
            "cores": str(self.cores),
        }

    @property
    def _eager_convolutions(self) -> str:
        """What torch makes of float32 there, as long as no task sets anything else."""
        allowed = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        return "tf32" if allowed == "tf32" and self.capability >= _HAS_TF32 else "ieee"

    def make_slab(self, trees: list[Any]) -> Slab:
        packed = Packed(trees)
        memory = torch.empty(_whole(packed.size), dtype=torch.uint8, device=self.place)
        packed.write(memory)
        return Slab(packed.trees, memory)

    def lock_pages(self, sizes: list[int]) -> bool:
        """Not while anything is timed, on any GPU: it takes the driver a second for each."""
        with self.driver.changing():
            return self._page_locked.reserve(sizes)

    @contextmanager
    def share(self, slab: Slab) -> Iterator[Shared]:
        """A copy in memory of its own, which no process has ever mapped."""
        with self._changing(slab.size):
            mapping, fd = cuda_driver.allocate(slab.size)
        try:
            copy = mapping.tensor()
            copy.copy_(slab.memory)
            torch.cuda.synchronize()
            yield Shared(fd, slab, copy)
        finally:
            with self._changing(slab.size):
                os.close(fd)
                mapping.close()

    def _changing(self, size: int) -> AbstractContextManager[None]:
        """So much memory is made, or given back: of little the driver makes no others wait."""
        return self.driver.changing() if size > _LITTLE_BYTES else contextlib.nullcontext()

    def prepare(self, process: RunnerProcess, all_queues: bool = False) -> None:
        os.sched_setaffinity(process.pid, self.clock_cores.of_runners())
        process.end_within(self.driver.changing)
        with self.driver.changing():
            process.open_gpu(_CONNECT_S, all_queues)

    def connect(self, process: RunnerProcess, tensors: int = 0) -> None:
        with self.driver.changing():
            self._give_pool(process, max(self.pool_bytes, tensors))

    def _give_pool(self, process: RunnerProcess, size: int) -> None:
        """What lies in it looks like values, and is none."""
        mapping, fd = cuda_driver.allocate(size)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(mapping.close)
            try:
                memory = mapping.tensor()
                memory.view(torch.float32).fill_(random.gauss(0, 1))
                torch.cuda.synchronize()
                base = process.use_pool(fd, mapping.size, self._library, _CONNECT_S)
            finally:
                os.close(fd)
            on_failure.pop_all()
        self._pools[process] = _Pool(mapping, memory, base)
        process.on_close(lambda: self._take_pool(process))

    def _take_pool(self, process: RunnerProcess) -> None:
        """Back from a process that has ended."""
        self._pools.pop(process).mapping.close()
        WIPING.note(self.process_bytes + HELD * process.largest_sent)

    def pool_base(self, process: RunnerProcess) -> int:
        """An address that can be read."""
        return self._pools[process].base

    def read(
        self, process: RunnerProcess, addresses: Sequence[int], into: Sequence[torch.Tensor]
    ) -> None:
        """Into memory of the GPU, or into page-locked memory of the host.

        The latter is done by a copy engine, which works beside whatever computes. All is waited
        for once: each time takes 0.1 ms.

        Raises:
            OSError: that is not memory of the process.
            InfraFault: the driver refuses.
        """
        pool = self._pools[process]
        for address, ours in zip(addresses, into, strict=True):
            start = address - pool.base
            if not 0 <= start <= start + ours.numel() <= pool.memory.numel():
                raise OSError("not memory that torch has allocated in the process")
            if ours.is_cuda:
                ours.copy_(pool.memory[start : start + ours.numel()], non_blocking=True)
                continue
            try:
                cuda_driver.copy_to_host(ours.data_ptr(), pool.mapping.address + start, len(ours))
            except cuda_driver.CudaError as error:
                raise InfraFault(f"an output cannot be read: {error}") from error
        torch.cuda.synchronize()

    def inputs_changed(self, process: RunnerProcess, shared: Shared, address: int) -> bool:
        # In words of eight bytes: comparing takes memory for each.
        return not torch.equal(
            *(of.view(torch.int64) for of in (shared.memory, shared.slab.memory))
        )

    def window(self) -> Window:
        return CudaWindow(self)

    def is_idle(self) -> bool:
        usual = self._usual_answer_s
        return any(self._answer_s() < _QUIET_FACTOR * usual for _ in range(_QUIET_TRIES))

    def _answer_s(self) -> float:
        """How long a small piece of work takes; where others compute it waits for its turn."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._probe.add_(0)
        torch.cuda.synchronize()
        return max(time.perf_counter() - start, 50e-6)

    def require_health(self) -> None:
        try:
            answer = int(self._probe.sum())
        except torch.OutOfMemoryError:  # it is full, and says so: nothing else is wrong with it
            return
        except RuntimeError as error:
            raise EvaluatorUnavailable(f"{self._facts.name} has failed: {error}") from error
        if answer != self._answer:
            raise EvaluatorUnavailable(f"{self._facts.name} gives wrong answers")

    def close(self) -> None:
        self._folder.cleanup()

    def others(self) -> frozenset[int]:
        ours = {os.getpid(), *descendants(os.getpid())}
        known = nvml.processes(str(self._facts.uuid))
        return frozenset(filter(_is_process, known - ours))


def _is_process(pid: int) -> bool:
    """Whether there is one of this number here; threads have numbers, and a folder, as well."""
    with contextlib.suppress(OSError):
        return procfs.status(pid).get("Tgid") == str(pid)
    return False


def _whole(size: int) -> int:
    step = cuda_driver.granularity()
    return -(-max(size, 1) // step) * step


def _build_triton_driver(cache: str) -> None:
    """What Triton compiles on its first use, whatever the kernel: once for all runners."""
    os.environ["TRITON_CACHE_DIR"] = cache
    with contextlib.suppress(ImportError):
        importlib.import_module("triton.runtime").driver.active.utils  # noqa: B018 (builds it)


def _why_none() -> str:
    if torch.version.cuda is None:
        return (
            f"device=cuda: this torch ({torch.__version__}) is built without CUDA. Install a CUDA "
            "build of torch, or use device=cpu."
        )
    return (
        f"device=cuda: torch {torch.__version__} (CUDA {torch.version.cuda}) finds no usable GPU. "
        "Check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and that the driver fits this CUDA; "
        "or use device=cpu."
    )
