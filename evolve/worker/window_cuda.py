"""Timing a block on a GPU.

The runner has tensors made over addresses behind which there is nothing of value. The clock starts
(t0), the referee hands over the memory with the inputs, the runner puts it behind these addresses,
runs its calls and says that it is done; the referee reads secret pieces of a few outputs of its own
choice and stops the clock (t1). Nothing can be computed before t0, since the values are not there,
nor after t1: the outputs chosen are then copied whole and judged, and have to hold what was read.
What a window of no calls costs that hands over as much memory is taken off. The referee computes
nothing inside of the window, pieces are read by a copy engine: changing from one process to another
would cost the GPU a tenth of a millisecond, more or less.

Inputs come cold: the second-level cache is overwritten before t0, and every call has inputs of its
own. While one side runs, the processes of the others are stopped, and the device has to show that
nothing else is running on it.
"""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from evolve.core.evaluation import Status
from evolve.worker import cuda_driver, custody
from evolve.worker.faults import CANDIDATE, TRUSTED, BusyFault, CandidateFault, blaming
from evolve.worker.process import RunnerProcess
from evolve.worker.slab import Shared
from evolve.worker.window import (
    SLOWEST_S,
    Block,
    Layout,
    TimedCase,
    places_of,
    require_distinct,
    require_no_company,
    size_in_bytes,
)
from evolve.worker.wiping import WIPING

if TYPE_CHECKING:
    from evolve.worker.device_cuda import CudaDevice

_WARM_BLOCKS = 1
_FLUSH_BYTES = 256 << 20  # more than twice the cache of any known GPU
_PIECE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some bytes of an output, from byte `start` on, as they are when the clock stops."""

    start: int
    seen: torch.Tensor

    @classmethod
    def chosen(cls, size: int) -> "_Piece":
        """A secret piece of an output of `size` bytes."""
        length = min(size, _PIECE_BYTES)
        start = secrets.randbelow(size - length + 1)
        return cls(start, torch.empty(length, dtype=torch.uint8, pin_memory=True))

    def is_still_in(self, output: torch.Tensor) -> bool:
        """Whether these bytes of an output (on the device) are now as they were."""
        later = output[self.start : self.start + self.seen.numel()].cpu()
        # By numpy, which has no threads: a dozen of torch's would share the clock's core, and take
        # 0.1 s for these few bytes (measured on 16 cores).
        return np.array_equal(later.numpy(), self.seen.numpy())


class CudaWindow:
    """See the module. One for each case of a sitting."""

    def __init__(self, device: "CudaDevice") -> None:
        self._device = device
        self._recorded: dict[RunnerProcess, tuple[bytes, ...]] = {}
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device.place)

    def warm_up(
        self, process: RunnerProcess, case: TimedCase, layout: Layout, working_set: int
    ) -> None:
        for _ in range(_WARM_BLOCKS):
            self._block(process, case, layout, -1)

    def run(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        number: int,
        recorded: bool = False,
        glance_after_s: float = 0.0,
        idles: int = 0,
        is_trusted: bool = False,
    ) -> Block:
        with self._core_of_timed(process):
            return self._block(process, case, layout, number, recorded, idles, is_trusted)

    def _block(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        number: int,
        recorded: bool = False,
        idles: int = 0,
        is_trusted: bool = False,
    ) -> Block:
        with self._clock_cores():
            with self._device.share(case.warm.block(number, case.calls)) as inputs:
                if recorded:
                    self._record(process, case, inputs)
                block = self._timed(process, case, layout, number, inputs, recorded, is_trusted)
            idle = tuple(self._idle(process, case, layout) for _ in range(idles))
            return replace(block, idle=idle)

    @contextlib.contextmanager
    def _core_of_timed(self, process: RunnerProcess) -> Iterator[None]:
        cores = self._device.clock_cores
        _keep_to(process, cores.of_timed)
        try:
            yield
        finally:
            _keep_to(process, cores.of_runners())

    def _record(self, process: RunnerProcess, case: TimedCase, inputs: Shared) -> None:
        """Have the block's calls recorded, unless those of the last one were laid out alike."""
        if self._recorded.get(process) != inputs.trees:
            process.record(case.warm.index, inputs, SLOWEST_S)
            self._recorded[process] = inputs.trees

    @contextlib.contextmanager
    def _clock_cores(self) -> Iterator[None]:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._device.clock_cores.of_clock)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def _timed(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        number: int,
        inputs: Shared,
        recorded: bool,
        is_trusted: bool,
    ) -> Block:
        device, sampled = self._device, case.sampled(number)
        pieces = _pieces(len(sampled), layout)
        with self._ready(process, inputs, is_warm_up=number < 0):
            start = time.perf_counter()
            done = process.run(case.warm.index, case.limit_s, reveal=inputs.fd, recorded=recorded)
            by_call = {at: places_of(done, at, case.calls, layout) for at in sampled}
            places = [address for at in sampled for address in by_call[at]]
            self._look(process, places, pieces)
            end = time.perf_counter()
        require_distinct(done, case.calls, layout)
        judged = () if is_trusted or number < 0 else case.judged(number)
        samples = self._samples(process, layout, judged, by_call, pieces, case.on_host)
        if device.inputs_changed(process, inputs, 0):
            raise CandidateFault(Status.MUTATED_INPUT, "forward wrote to its inputs when timed")
        process.drop(SLOWEST_S)
        return Block(end - start, done.seconds, number, samples)

    def _idle(self, process: RunnerProcess, case: TimedCase, layout: Layout) -> float:
        """Seconds of a block without a call, of one kernel of no size.

        Without it, the GPU would not change over to the process, which takes as long as 0.16 ms (an
        H100) and every block with calls has in it.
        With memory of its own: what the process has had already takes a seventh less (an H200).
        """
        pieces = _pieces(len(case.sampled(-1)), layout)
        with self._device.share(case.warm.block(-1, case.calls)) as inputs:
            with self._ready(process, inputs):
                start = time.perf_counter()
                process.run(case.warm.index, case.limit_s, idle=True, reveal=inputs.fd)
                self._look(process, [self._device.pool_base(process)] * len(pieces), pieces)
                end = time.perf_counter()
            process.drop(SLOWEST_S)
            return end - start

    @contextlib.contextmanager
    def _ready(
        self, process: RunnerProcess, inputs: Shared, *, is_warm_up: bool = False
    ) -> Iterator[None]:
        """Inside the block may begin, and no other GPU of the host holds up the driver."""
        process.stage(inputs, SLOWEST_S, layout_only=True)  # 2 to 3 ms, while memory is wiped
        if not is_warm_up:
            WIPING.wait()
        with contextlib.nullcontext() if is_warm_up else self._device.driver.timing():
            # Last, so that hardly any time is left to bring something back into the cache.
            cuda_driver.reset_persisting_l2()
            self._flush.fill_(1)
            torch.cuda.synchronize()
            yield

    def _look(
        self, process: RunnerProcess, places: Iterable[int], pieces: Sequence["_Piece"]
    ) -> None:
        """The pieces, as they are now."""
        starts = [place + piece.start for place, piece in zip(places, pieces, strict=True)]
        custody.read_all(self._device, process, starts, [piece.seen for piece in pieces])

    def _samples(
        self,
        process: RunnerProcess,
        layout: Layout,
        judged: tuple[int, ...],
        by_call: Mapping[int, tuple[int, ...]],
        pieces: list["_Piece"],
        on_host: bool,
    ) -> dict[int, list[torch.Tensor]]:
        """The outputs chosen, whole; what was seen of them when the clock stopped has to be so.

        Memory for them is made only now: before, it would show which blocks are judged.
        """
        samples = {}
        remaining = iter(pieces)
        for at in judged:  # the first of those looked at
            taken = custody.buffers_for(self._device, layout, on_host)
            custody.read_all(self._device, process, by_call[at], taken)
            for raw, piece in zip(taken, remaining, strict=False):
                if not piece.is_still_in(raw):
                    raise CandidateFault(
                        Status.WRONG_VALUE, "an output changed after the calls were said to be done"
                    )
            samples[at] = custody.as_tensors(taken, layout)
        return samples

    def charges(self, blocks: list[Block], reference: list[Block]) -> list[float]:
        """Nothing can be done outside of the window."""
        return [0.0] * len(blocks)

    @contextlib.contextmanager
    def alone(self, side: str, processes: Mapping[str, RunnerProcess]) -> Iterator[None]:
        others = {name: process for name, process in processes.items() if name != side}
        for process in others.values():
            _signal(process, signal.SIGSTOP)
        try:
            self._require_quiet(others, processes)
            yield
            self._require_quiet(others, processes)  # work that waited for this side to start
            _require_no_company(side, processes[side])
        finally:
            for process in others.values():
                _signal(process, signal.SIGCONT)

    def _require_quiet(
        self, others: Mapping[str, RunnerProcess], processes: Mapping[str, RunnerProcess]
    ) -> None:
        """Kernels of a stopped process that still run would share the device with this side."""
        for name, process in others.items():
            _require_no_company(name, process)
        if not self._device.is_idle():
            with blaming(_suspect(processes)):
                raise BusyFault(
                    "the GPU is busy although nothing was asked of any process: kernels run on "
                    "after forward has returned, or are launched in the background"
                )

    def settle(self) -> None:
        """All that there is to see has been seen block by block."""


def _pieces(calls: int, layout: Layout) -> list[_Piece]:
    """Of the outputs of so many calls."""
    return [_Piece.chosen(size_in_bytes(place)) for _ in range(calls) for place in layout]


def _suspect(sides: Iterable[str]) -> str:
    """Whose work it is that nobody's turn explains: whoever of them is not ours.

    Of two an opponent first, which only leaves the comparison: if it was the candidate, the GPU
    will be busy again.
    """
    return next((side for side in sides if side not in {CANDIDATE, *TRUSTED}), CANDIDATE)


def _require_no_company(side: str, process: RunnerProcess) -> None:
    with blaming(side):
        if process.alive:
            require_no_company(process)


def _keep_to(process: RunnerProcess, cores: set[int]) -> None:
    with contextlib.suppress(ProcessLookupError):  # whoever asks it next learns how it ended
        os.sched_setaffinity(process.pid, cores)


def _signal(process: RunnerProcess, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # whoever asks it next learns how it ended
        os.kill(process.pid, number)
