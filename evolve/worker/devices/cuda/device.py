"""A GPU as the device under test (CUDA)."""

import contextlib
import ctypes
import importlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from evolve.core.devices import DeviceKind, device_kind_of
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Status
from evolve.worker.base import gpu_driver
from evolve.worker.base.driver_calls import driver_calls
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.scratch import ScratchFolder
from evolve.worker.devices.cpu_affinity import ClockCores
from evolve.worker.devices.cuda import nvml, pinned_memory
from evolve.worker.devices.cuda.arenas import Arena, Arenas
from evolve.worker.devices.cuda.lent import Lent
from evolve.worker.devices.cuda.pinned_memory import PageLocked
from evolve.worker.devices.cuda.window import CudaWindow, keep_to
from evolve.worker.devices.platforms import require_platform
from evolve.worker.devices.window import Window
from evolve.worker.ipc import native
from evolve.worker.ipc.signals import Signals
from evolve.worker.ipc.tensor_buffer import (
    GUARD,
    GUARD_BYTES,
    Shared,
    TensorBuffer,
    buffer_of,
)
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.runner.memory_cuda import GATE_BYTES
from evolve.worker.sandbox import procfs
from evolve.worker.sandbox.mappings import Mapping
from evolve.worker.sandbox.supervisor import descendants

_POOL_SHARE = 160  # a runner's tensors get one in so many bytes of the device
_BLOCK_SHARE = 100
_REWARD_SHARE = 100
_ARENAS_SHARE = 16  # kept for runners to come
_LONE_BYTES = 1 << 30  # inputs that large are not copied to make a buffer of them
_PIECES_BYTES = 4 << 20  # of outputs, read while the clock runs
_SPIN_S = 0.2  # for a block to be done, before the judge sleeps
_WARM_SHARE = 8
_JUDGE_SHARE = 0.72  # at most: the rest is for the runners
_EXPECTING_SHARE = 14
_ROOM_SHARE = (
    0.55  # besides: warm tasks twice (inputs, references), and contexts of preforked processes
)
_HAS_TF32 = 80  # capability
_QUIET_S = 0.03  # while others open the device, its driver may hold up work for some milliseconds
_QUIET_FACTOR = 4.0  # an idle device answers within so many times its usual time
_CONNECT_S = 60.0
_PAST_POOL = 2 << 30  # a process may have so much that it does not ask torch for
# Expected values of large tasks leave no room for holes between them. And the host's pages are
# locked by several threads: 7.5 GiB in 1.1 s instead of 3.3 (beside an H200).
_ALLOCATOR = (
    "expandable_segments:True,pinned_use_cuda_host_register:True,pinned_num_register_threads:8"
)
_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


class CudaDevice:
    """One GPU. Runners see it alone, read copies of their inputs, and their outputs are read here.

    A runner maps two arenas of the judge for as long as it lives: inputs are copied to one, and its
    torch allocates from the other, the *pool*. So an output is read without the candidate's help,
    no memory is made or mapped between timed blocks, and data of an earlier runner is overwritten
    before the next gets it (`arenas`).

    The process has to see one GPU only (`CUDA_VISIBLE_DEVICES`).

    A device whose torch looks like CUDA's derives from this one (`hip`), and replaces methods of
    the vendor's part.

    Raises:
        UsageError: torch sees none, or is built for another vendor's.
        EvaluatorUnavailable: something that the GPU service needs is missing.
    """

    platform = "cuda"  # of the torch that it needs (`torch_platform`)
    half_width = 0.01
    spread = 0.008
    block_s = 0.003  # against the 0.35 ms, give or take 0.02, that a window costs
    calls = (1, 1024)
    blocks = 24
    turn_blocks = 2
    few_blocks = 12
    block_pool = 24
    judged_s = 2.0
    has_profiler = True
    has_memory_mark = False  # of a pool there is none, and `cudaMalloc` goes past it
    timing_slots = 6  # while one is timed, processes of the others open
    rounds = 2
    preforked = 6
    ends_alone = True
    references = 10
    process_bytes = 512 << 20  # a context, and the code loaded into it
    compiles_aside = True  # the clock's core is its own
    gives_calls = False
    stack_samples = 0
    memory = 32 << 30
    other_nodes: tuple[str, ...] = ()
    limit_address_space = False  # a CUDA context reserves far more than it uses

    def __init__(self) -> None:
        # Before torch looks.
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", self._allocator())
        require_platform(self.platform)
        if not torch.cuda.is_available():
            raise UsageError(self._why_none())
        self.place = torch.device("cuda", 0)
        self._facts = facts = torch.cuda.get_device_properties(0)
        self.name = f"{self.platform}-{facts.uuid}"
        # Measurements depend on the GPU alone; whether tasks fit, on the memory others leave.
        self.pool_bytes = _whole(facts.total_memory // _POOL_SHARE)
        self.block_bytes = facts.total_memory // _BLOCK_SHARE
        self.reward_bytes = facts.total_memory // _REWARD_SHARE
        self.total_bytes, _ = torch.cuda.mem_get_info()
        self.warm_bytes = self.total_bytes // _WARM_SHARE
        self.expecting_bytes = self.total_bytes // _EXPECTING_SHARE
        self.room = int(_ROOM_SHARE * self.total_bytes)
        # Or torch's cache would leave too little for the runners.
        share = _JUDGE_SHARE * self.total_bytes / facts.total_memory
        torch.cuda.set_per_process_memory_fraction(share)
        self._folder = ScratchFolder("cuda")
        self._folder.path.chmod(0o755)
        self.readable: tuple[str, ...] = (str(self._folder.path),)
        cache = f"{self._folder.path}/triton"
        with ThreadPoolExecutor(1) as pool:  # both wait for a compiler
            library = pool.submit(native.build, self._folder.path)
            try:
                _build_triton_driver(cache)
            finally:  # gives the best message about a missing compiler
                self.library_path = library.result()
        self.library = native.load(self.library_path)
        self._open_clock()
        self._lent: dict[RunnerProcess, Lent] = {}
        self._arenas = Arenas(self.total_bytes // _ARENAS_SHARE)
        self._page_locked = PageLocked()
        self.page_locked_bytes = pinned_memory.buffer(_PIECES_BYTES).numpy()
        self._flush = torch.empty(2 * _whole(self._cache_bytes()), dtype=torch.uint8,
                                  device=self.place)  # fmt: skip
        self._probe = torch.arange(1 << 20, device=self.place)
        self._answer = int(self._probe.sum())
        self._copied = torch.empty(1 << 10, dtype=self._probe.dtype, pin_memory=True)
        self._usual_answer_s = min(self._answer_s() for _ in range(9))
        self.nodes = tuple(path for path in self._node_paths() if Path(path).exists())
        cores = os.sched_getaffinity(0)
        self.slots = min(8, max(2, len(cores) // 2))
        self.clock_cores = ClockCores(cores)
        self.capability = self._capability()
        self.spin_s = _SPIN_S if self.clock_cores.has_own else 0.0
        # All threads of this process, and all that it starts, keep off the clock's cores.
        os.sched_setaffinity(0, self.clock_cores.of_runners())
        self.variables = self._vendor_variables() | {
            "TRITON_CACHE_DIR": cache,
            "TRITON_CACHE_AUTOTUNING": "1",  # one process reuses the tuning of another
        }

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def device_class(self) -> str:
        """The model of the GPU."""
        return f"{self.platform}: {self._facts.name}"

    @property
    def kind(self) -> DeviceKind:
        return device_kind_of(self.device_class)

    def describe(self) -> dict[str, str]:
        facts = self._facts
        # Torch's stubs leave the larger limit out, and some builds the attribute.
        shared = getattr(facts, "shared_memory_per_block_optin", facts.shared_memory_per_block)
        return {
            "device": facts.name,
            **self._architecture(),
            "multiprocessors": str(facts.multi_processor_count),
            "shared_memory_bytes": str(shared),
            "warp_size": str(facts.warp_size),
            "memory_bytes": str(facts.total_memory),
            "eager_convolutions": self._eager_convolutions,
            **self._versions(),
            "cores": str(self.cores),
            "clock_waits": "by spinning" if self.spin_s else "by sleeping: too few cores",
        }

    @property
    def _eager_convolutions(self) -> str:
        """Torch's precision for float32 there, as long as no task sets it."""
        allowed = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        return "tf32" if allowed == "tf32" and self.capability >= _HAS_TF32 else "ieee"

    def make_buffer(self, trees: list[Any]) -> TensorBuffer:
        def allocate(size: int) -> torch.Tensor:
            return torch.empty(_whole(size), dtype=torch.uint8, device=self.place)

        return buffer_of(trees, allocate, _LONE_BYTES)

    def _open_clock(self) -> None:
        """Have the driver ready for windows (`native.c`)."""
        torch.zeros(1, device=self.place)  # makes the context
        failed = ctypes.c_char_p()
        blocks, driver = 8 * self._facts.multi_processor_count, driver_calls()
        code = self.library.evolve_open_clock(
            driver.path().encode(), driver.is_hip, blocks, ctypes.byref(failed)
        )
        if code:
            name = (failed.value or b"?").decode()
            why = "it has no such call" if code < 0 else f"it answers {code}"
            raise EvaluatorUnavailable(
                f"device={self.platform} needs {name} of the driver: {why}. Update the driver."
            )

    def lock_pages(self, sizes: list[int]) -> bool:
        return self._page_locked.reserve(sizes)

    @contextmanager
    def share(self, process: RunnerProcess, buffer: TensorBuffer) -> Iterator[Shared]:
        """A copy in the runner's arena, valid until the next."""
        memory = self.inputs_of(process, buffer.size)
        memory.copy_(buffer.memory)
        torch.cuda.synchronize()
        yield Shared(-1, buffer, memory)

    def inputs_of(self, process: RunnerProcess, size: int) -> torch.Tensor:
        """The first `size` bytes of the runner's inputs; it gets more memory if that is less."""
        lent, needed = self._lent[process], size + GUARD_BYTES + GATE_BYTES
        if lent.inputs is None or lent.inputs.size < needed:
            if lent.inputs is not None:
                lent.former.append(lent.inputs)
            lent.inputs, lent.guarded = self._arenas.take(needed), 0
            lent.layouts.clear()
            lent.recorded = None
            lent.claimed = process.use_inputs(lent.inputs.fd, lent.inputs.size, _CONNECT_S)
        if lent.guarded != size:  # a buffer may have none at its end
            lent.inputs.memory[size : size + GUARD_BYTES].fill_(GUARD)
            torch.cuda.synchronize()
            lent.guarded = size
        return lent.inputs.memory[:size]

    def lent_to(self, process: RunnerProcess) -> Lent:
        """The judge's memory that a connected runner uses."""
        return self._lent[process]

    def prepare(self, process: RunnerProcess, all_queues: bool = False) -> None:
        os.sched_setaffinity(process.pid, self.clock_cores.of_runners())
        process.open_gpu(_CONNECT_S, all_queues)

    def connect(self, process: RunnerProcess, tensors: int = 0) -> None:
        """Give it its pool and the page of signals."""
        with contextlib.ExitStack() as on_failure:
            size = _whole(max(self.pool_bytes, tensors))
            pool = self._arenas.take(size)
            on_failure.callback(self._arenas.give_back, pool)
            signals = Signals()
            on_failure.callback(os.close, signals.fd)
            base = process.use_pool(pool.fd, pool.size, size, self.library_path, _CONNECT_S)
            process.use_signals(signals.fd, self.spin_s, _CONNECT_S)
            on_failure.pop_all()
        self._lent[process] = Lent(pool, base, signals)
        process.on_close(lambda: self._take_back(process))

    def _take_back(self, process: RunnerProcess) -> None:
        """All that a process had, once it has ended; to the driver if that is not certain."""
        lent = self._lent.pop(process)
        os.close(lent.signals.fd)
        for arena in (lent.pool, lent.inputs, *lent.former):
            if arena is not None:
                (self._arenas.give_back if process.has_ended else Arena.close)(arena)

    def read(
        self,
        process: RunnerProcess,
        addresses: Sequence[int],
        into: Sequence[torch.Tensor],
        aliased: Sequence[int] = (),
    ) -> None:
        """Into memory of the GPU, or into page-locked memory of the host.

        All is waited for once: each time takes 0.1 ms.

        Raises:
            OSError: that is not memory of the process.
        """
        lent = self._lent[process]
        for at, (address, ours) in enumerate(zip(addresses, into, strict=True)):
            theirs = lent.output_at(address, ours.numel(), may_be_input=at in aliased)
            ours.copy_(theirs, non_blocking=True)
        torch.cuda.synchronize()

    def inputs_in(self, process: RunnerProcess, shared: Shared) -> list[Mapping]:
        claimed = self._lent[process].claimed
        return [Mapping(claimed, claimed + shared.size, 0)]

    def inputs_changed(self, process: RunnerProcess, shared: Shared, address: int) -> bool:
        # In words of eight bytes: comparing takes memory for each.
        words = [of.view(torch.int64) for of in (shared.memory, shared.buffer.memory)]
        return self._has_written_behind(process, shared.size) or not torch.equal(*words)

    def inputs_now(self, process: RunnerProcess, shared: Shared, address: int) -> torch.Tensor:
        """Of the memory that both have."""
        if self._has_written_behind(process, shared.size):
            raise CandidateFault(Status.MUTATED_INPUT, "forward wrote beyond the end of its inputs")
        return shared.memory.clone()

    def _has_written_behind(self, process: RunnerProcess, size: int) -> bool:
        """Whether the guard behind so many bytes of inputs is no longer whole (see `inputs_of`)."""
        inputs = self._lent[process].inputs
        return inputs is not None and bool((inputs.memory[size:][:GUARD_BYTES] != GUARD).any())

    def window(self) -> Window:
        return CudaWindow(self)

    def window_arguments(
        self, staged: torch.Tensor, inputs: torch.Tensor
    ) -> native.WindowArguments:
        """Of a window that copies the first to the second; the runner's part is left open."""
        half = self._flush.numel() // 2
        return native.WindowArguments(
            inputs=inputs.data_ptr(),
            staged=staged.data_ptr(),
            bytes=staged.numel(),
            first=staged.numel(),
            flush=self._flush.data_ptr(),
            flush_bytes=half,
        )

    @contextmanager
    def on_clock_cores(self, process: RunnerProcess) -> Iterator[None]:
        """This thread and a runner wait without sleeping, each on a core of its own.

        The runner stays there: moved back and forth, it would begin each turn with cold caches.
        """
        lent = self._lent[process]
        if not lent.is_timed:
            keep_to(process, self.clock_cores.of_timed)
            lent.is_timed = True
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.clock_cores.of_clock)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def is_idle(self) -> bool:
        deadline = time.monotonic() + _QUIET_S
        while self._answer_s() > _QUIET_FACTOR * self._usual_answer_s:
            if time.monotonic() > deadline:
                return False
        return True

    def _answer_s(self) -> float:
        """How long a small piece of work takes; if others compute or copy it waits."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._probe.add_(0)
        self._copied.copy_(self._probe[: self._copied.numel()], non_blocking=True)
        self._probe[: self._copied.numel()].copy_(self._copied, non_blocking=True)
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

    def release(self) -> None:
        self._arenas.release()

    def close(self) -> None:
        self.release()
        self._folder.close()

    def others(self) -> frozenset[int]:
        ours = {os.getpid(), *descendants(os.getpid())}
        known = self._processes()
        return frozenset(filter(_is_process, known.keys() - ours))

    def require_modest(self, process: RunnerProcess) -> None:
        taken = self._processes().get(process.pid, 0)
        if taken > self.process_bytes + _PAST_POOL:
            raise CandidateFault(
                Status.OOM,
                f"the program has taken {taken >> 20} MiB of the device past torch's allocator, "
                f"where {(self.process_bytes + _PAST_POOL) >> 20} MiB are allowed",
            )

    # --- the vendor's part ---

    def _allocator(self) -> str:
        """Settings of torch's allocator."""
        return _ALLOCATOR

    def _why_none(self) -> str:
        """Why torch sees no GPU, with the remedy."""
        if torch.version.cuda is None:
            return (
                f"device=cuda: this torch ({torch.__version__}) is built without CUDA. Install a "
                "CUDA build of torch, or use device=cpu."
            )
        return (
            f"device=cuda: torch {torch.__version__} (CUDA {torch.version.cuda}) finds no usable "
            "GPU. Check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and that the driver fits this CUDA; "
            "or use device=cpu."
        )

    def _capability(self) -> int:
        return 10 * self._facts.major + self._facts.minor

    def _cache_bytes(self) -> int:
        """Of the last cache before memory."""
        return int(self._facts.L2_cache_size)

    def _node_paths(self) -> tuple[str, ...]:
        return (nvml.node_of(str(self._facts.uuid)), *_NODES)

    def _vendor_variables(self) -> dict[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": f"GPU-{self._facts.uuid}",
            "CUDA_MODULE_LOADING": "LAZY",
        }

    def _architecture(self) -> dict[str, str]:
        return {"capability": f"{self._facts.major}.{self._facts.minor}"}

    def _versions(self) -> dict[str, str]:
        return {"cuda": torch.version.cuda or "", "driver": nvml.driver_version()}

    def _processes(self) -> dict[int, int]:
        """Bytes of each process that computes on the GPU."""
        return nvml.processes(str(self._facts.uuid))


def _is_process(pid: int) -> bool:
    """Whether there is one of this number here; threads have numbers, and a folder, as well."""
    with contextlib.suppress(OSError):
        return procfs.status(pid).get("Tgid") == str(pid)
    return False


def _whole(size: int) -> int:
    step = gpu_driver.granularity()
    return -(-max(size, 1) // step) * step


def _build_triton_driver(cache: str) -> None:
    """Code that Triton compiles on its first use for any kernel: once for all runners."""
    os.environ["TRITON_CACHE_DIR"] = cache
    with contextlib.suppress(ImportError):
        importlib.import_module("triton.runtime").driver.active.utils  # noqa: B018 (builds it)
