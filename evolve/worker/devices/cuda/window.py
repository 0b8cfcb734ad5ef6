"""Timing a block on a GPU.

Memory is mapped once, when a runner starts: nothing is made, mapped or freed around a window. The
runner has tensors over its inputs' arena and waits for a signal. The clock starts (t0), the judge
has the GPU copy fresh inputs there, overwrite the second-level cache and write a number behind the
inputs, and signals; the runner has its stream wait for that number, launches its calls, and signals
that they are done; the judge reads secret pieces of a few outputs of its own choice and stops the
clock (t1). So what the host takes to launch the first calls passes while inputs are copied, on all
sides, and launches count if they are slower than the GPU. Nothing can be computed before t0, since
the values are not there: work that was queued before it and waits for them waits as all do. Nor
after t1: the process is stopped, the outputs chosen are copied whole and judged, and have to hold
what was read.

Calls are handed over one by one, so that none can be made for those that follow. In a block that is
not scored the judge pauses at secret calls: the outputs of the calls before have to be there then,
and only afterwards come the inputs of the next, in whose place others had been.

The overhead of a window is measured by windows of one empty kernel, with as many inputs, and
subtracted. All of it, from t0 to t1, is one call of the worker's C library: other threads of the
judge could take the interpreter in between.

While one side runs, the processes of the others are stopped, and the device has to show that
nothing else is running on it.
"""

import contextlib
import ctypes
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from evolve.core.evaluation import Status
from evolve.worker.base.faults import (
    CANDIDATE,
    TRUSTED,
    BusyFault,
    CandidateFault,
    LateFault,
    MovedFault,
    blaming,
    timeout,
)
from evolve.worker.base.infra import InfraFault
from evolve.worker.devices import output_snapshot
from evolve.worker.devices.changed_inputs import require_rest_unchanged
from evolve.worker.devices.standing import stopped
from evolve.worker.devices.window import (
    SLOWEST_S,
    Block,
    Layout,
    TimedCase,
    fault_of_change,
    places_of,
    require_distinct,
    require_no_company,
    size_in_bytes,
)
from evolve.worker.ipc import native
from evolve.worker.ipc.messages import Done
from evolve.worker.ipc.pytree import tensors_of
from evolve.worker.ipc.signals import Signals
from evolve.worker.ipc.tensor_buffer import TensorBuffer, unpack
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.runner.memory_cuda import gate_of

if TYPE_CHECKING:
    from evolve.worker.devices.cuda.device import CudaDevice
    from evolve.worker.devices.cuda.lent import Lent

_WARM_BLOCKS = 2
_ROUSING_SHARE = 4  # of a block's calls that bring a process back to where it is timed
_BEGIN_S = 10.0  # for a runner to get ready for a window
_STOPPED_SLACK_S = 0.001  # of processor time, of a process that stands
_PIECE_BYTES = 64 << 10
CALLS, GRAPH, NOTHING = "calls", "graph", "nothing"
_CHANGED = "an output changed after its call was said to be done"
_AFTER = (
    "the GPU is busy although nothing was asked of any process: kernels run on after forward has "
    "returned, or are launched in the background"
)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of an output, from byte `start` on, as they are when the clock stops (`seen`)."""

    output: int  # counted over the block's calls
    start: int
    seen: NDArray[np.uint8]
    after: int = 0  # calls, and then a pause, in which it is `early`
    early: NDArray[np.uint8] | None = None
    is_aliased: bool = False  # it may lie in the inputs

    @property
    def was_late(self) -> bool:
        """Whether it was something else in the pause."""
        return self.early is not None and not np.array_equal(self.early, self.seen)

    def is_in(self, taken: torch.Tensor) -> bool:
        """Whether an output that was copied whole (bytes) has the sampled values."""
        later = taken[self.start : self.start + self.seen.size].cpu()
        return np.array_equal(later.numpy(), self.seen)


class CudaWindow:
    """See the module. One for each case of a round."""

    holds_back = True

    def __init__(self, device: "CudaDevice") -> None:
        self._device = device

    def warm_up(
        self, process: RunnerProcess, case: TimedCase, layout: Layout, working_set: int
    ) -> None:
        lent, key = self._device.lent_to(process), (case.warm.index, case.calls)
        if key not in lent.warmed:
            for _ in range(_WARM_BLOCKS):
                self._block(process, case, layout, -1, CALLS, is_trusted=True)
            lent.warmed.add(key)

    def rouse(self, process: RunnerProcess, case: TimedCase, layout: Layout) -> None:
        """A short block that does not count: the other side has had the caches of its core."""
        short = replace(case, calls=max(1, case.calls // _ROUSING_SHARE))
        self._block(process, short, layout, -1, CALLS, is_trusted=True)

    def run(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        number: int,
        recorded: bool = False,
        sample_after_s: float = 0.0,
        idles: int = 0,
        is_trusted: bool = False,
        pause_s: float = 0.0,
    ) -> Block:
        kind = GRAPH if recorded else CALLS
        block = self._block(process, case, layout, number, kind, is_trusted, pause_s)
        idle = tuple(
            self._block(process, case, layout, number, NOTHING, is_trusted).run
            for _ in range(idles)
        )
        return replace(block, idle=idle)

    def _block(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        number: int,
        kind: str,
        is_trusted: bool,
        pause_s: float = 0.0,
    ) -> Block:
        staged = case.warm.block(number, case.calls)
        inputs = self._device.inputs_of(process, staged.size)
        lent = self._device.lent_to(process)
        recording = case.warm.index, staged.trees
        if kind == GRAPH and lent.recorded != recording:
            lent.recorded = None
            process.record(case.warm.index, staged.size, staged.trees, SLOWEST_S)
            lent.recorded = recording
        late = case.warm.late_calls(number, case.calls) if pause_s else ()
        decoys = case.warm.block(case.warm.decoys, case.calls) if late else staged
        late = late if decoys.size == staged.size else ()
        judged = case.judged(number)
        judged += tuple(call for call in (*late, *_before(late)) if call not in judged)
        # A window of no calls reads as many: there, where those of the last block lay.
        looked_at = tuple(dict.fromkeys((*case.sampled(number), *judged)))
        pieces = list(self._pieces(looked_at, late, layout, case.warm.effects.aliased))
        asked = self._arguments(process, lent, staged.memory, inputs, pieces)
        asked.calls = case.calls if kind == CALLS else 0
        asked.limit_ns = int(case.limit_s * 1e9)
        if late:
            _hold_back(asked, late, staged, decoys, pause_s)
        asked.sequence = self._begin(process, lent, case, kind, staged)
        outcome = self._device.library.evolve_window(ctypes.byref(asked))
        _require_timed(outcome, process, case.limit_s)
        run_s, done = (asked.ended - asked.begun) * 1e-9, Done(*lent.signals.answer())
        if kind == NOTHING:
            return Block(run_s, done.seconds, number, {})
        require_distinct(done, case.calls, layout, case.warm.effects.kept)
        if is_trusted or number < 0:
            return Block(run_s, done.seconds, number, {})
        with stopped(process):  # the clock would not see further work
            self._require_done(asked, pieces, done, len(layout), case.warm.effects.kept)
            samples = self._samples(process, case, layout, judged, done, pieces)
            if changed := case.warm.effects.changed:
                require_rest_unchanged(staged, inputs, changed)
                for call, taken in samples.items():
                    tensors = tensors_of(unpack(staged.trees[call], inputs))
                    taken += [tensors[at].clone() for at in changed]
            elif not _same(inputs, staged.memory):
                raise CandidateFault(Status.MUTATED_INPUT, "forward wrote to its inputs when timed")
        process.resume()
        return Block(run_s, done.seconds, number, samples)

    def _begin(
        self, process: RunnerProcess, lent: "Lent", case: TimedCase, kind: str, staged: TensorBuffer
    ) -> int:
        """Have the runner wait for a window; its number."""
        lent.signals.sequence += 1
        number, is_new = _layout_number(lent, staged.trees)
        trees = staged.trees if is_new else ()
        process.begin(case.warm.index, kind, number, trees, lent.signals.sequence, _BEGIN_S)
        return lent.signals.sequence

    def _arguments(
        self,
        process: RunnerProcess,
        lent: "Lent",
        staged: torch.Tensor,
        inputs: torch.Tensor,
        pieces: Sequence[_Piece],
    ) -> native.WindowArguments:
        """The library's arguments for a window, except its number and its limit."""
        places = (native.Piece * max(1, len(pieces)))()
        for place, piece in zip(places, pieces, strict=False):
            place.word, place.start = Signals.word(piece.output), piece.start
            place.length, place.to = piece.seen.size, piece.seen.ctypes.data
            place.aliased = piece.is_aliased
            if piece.early is not None:
                place.after, place.early = piece.after, piece.early.ctypes.data
        asked = self._device.window_arguments(staged, inputs)
        signals = lent.signals
        asked.go, asked.done, asked.page = signals.go, signals.done, signals.address
        asked.given, asked.made = signals.given, signals.made
        asked.pid = process.pid
        asked.fd, asked.spin_ns = process.channel_fd, int(self._device.spin_s * 1e9)
        asked.pieces, asked.count = places, len(pieces)
        asked.pool, asked.pool_bytes = lent.base, lent.pool.size
        asked.view, asked.claimed = lent.pool.mapping.address, lent.claimed
        assert lent.inputs is not None
        asked.gate = gate_of(lent.inputs.mapping.address, lent.inputs.size)
        return asked

    def _require_done(
        self,
        asked: native.WindowArguments,
        pieces: Sequence[_Piece],
        done: Done,
        width: int,
        kept: Sequence[int],
    ) -> None:
        """The pieces are unchanged since the clock stopped, now that the device is idle."""
        seen = [piece.seen.copy() for piece in pieces]
        if not self._device.is_idle():
            raise BusyFault(_AFTER)
        outcome = self._device.library.evolve_read(ctypes.byref(asked))
        same = [np.array_equal(piece.seen, was) for piece, was in zip(pieces, seen, strict=True)]
        if outcome != native.TIMED or not all(same):
            raise _changed()
        for piece in pieces:
            if piece.was_late:
                fault = fault_of_change(done, piece.output % width, width, kept, _CHANGED)
                is_late = fault.status is Status.WRONG_VALUE
                raise LateFault(Status.WRONG_VALUE, _CHANGED) if is_late else fault

    def _pieces(
        self, calls: Sequence[int], late: Sequence[int], layout: Layout, aliased: Sequence[int]
    ) -> Iterator[_Piece]:
        """A secret piece of every output of some calls, twice if a pause follows one."""
        room = self._device.page_locked_bytes
        before = _before(late)
        most = min(_PIECE_BYTES, room.size // max(1, 2 * len(calls) * len(layout)))
        at = 0
        for call in calls:
            for place, described in enumerate(layout):
                size = size_in_bytes(described)
                length = min(size, most)
                start = secrets.randbelow(size - length + 1)
                output, seen = call * len(layout) + place, room[at : at + length]
                at += length
                piece = _Piece(output, start, seen, is_aliased=place in aliased)
                if call not in before:
                    yield piece
                    continue
                yield replace(piece, after=call + 1, early=room[at : at + length])
                at += length

    def _samples(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        judged: tuple[int, ...],
        done: Done,
        pieces: Sequence[_Piece],
    ) -> dict[int, list[torch.Tensor]]:
        """The outputs chosen, whole; they have to hold the values sampled when the clock stopped.

        Memory for them is made only now: before, it would show which blocks are judged.
        """
        samples = {}
        by_output = {piece.output: piece for piece in pieces}
        for call in judged:
            taken = output_snapshot.buffers_for(self._device, layout, case.on_host)
            places = places_of(done, call, case.calls, layout)
            aliased = case.warm.effects.aliased
            output_snapshot.read_all(self._device, process, places, taken, aliased)
            seen = [by_output[call * len(layout) + place] for place in range(len(layout))]
            if not all(piece.is_in(raw) for piece, raw in zip(seen, taken, strict=True)):
                raise _changed()
            samples[call] = output_snapshot.as_tensors(taken, layout)
        return samples

    def charges(self, blocks: list[Block], reference: list[Block]) -> list[float]:
        """Nothing can be done outside of the window."""
        return [0.0] * len(blocks)

    @contextlib.contextmanager
    def alone(self, side: str, processes: Mapping[str, RunnerProcess]) -> Iterator[None]:
        others = {name: process for name, process in processes.items() if name != side}
        try:
            before = {name: _stand(name, process) for name, process in others.items()}
            self._require_quiet(others, processes)
            with self._device.on_clock_cores(processes[side]):
                yield
            self._require_quiet(others, processes)  # work that waited for this side to start
            _require_no_company(side, processes[side])
            for name, process in others.items():
                _require_stood(name, process, before[name])
        finally:
            for process in others.values():
                process.resume()

    def _require_quiet(
        self, others: Mapping[str, RunnerProcess], processes: Mapping[str, RunnerProcess]
    ) -> None:
        """Kernels of a stopped process that still run would share the device with this side."""
        for name, process in others.items():
            _require_no_company(name, process)
        if not self._device.is_idle():
            with blaming(_suspect(processes)):
                raise BusyFault(_AFTER)

    def settle(self) -> None:
        """All that there is to see has been seen block by block."""


def _before(late: Sequence[int]) -> list[int]:
    """The calls that a pause follows."""
    return [call - 1 for call in late]


def _hold_back(
    asked: native.WindowArguments,
    late: Sequence[int],
    staged: TensorBuffer,
    decoys: TensorBuffer,
    pause_s: float,
) -> None:
    """Have a window pause before these calls, and bring the inputs of each only then."""
    ends = staged.bounds()
    starts = [ends[call - 1] for call in late]
    pauses = (native.Pause * len(late))()
    stops = [*starts[1:], staged.size]  # to the end of storages, of which inputs may be parts
    for pause, call, start, end in zip(pauses, late, starts, stops, strict=True):
        pause.after, pause.start, pause.end = call, start, end
    asked.pauses, asked.pause_count, asked.pause_ns = pauses, len(late), int(pause_s * 1e9)
    asked.decoys, asked.first = decoys.memory.data_ptr(), starts[0]


def _changed() -> CandidateFault:
    return CandidateFault(Status.WRONG_VALUE, _CHANGED)


def _require_timed(outcome: int, process: RunnerProcess, limit_s: float) -> None:
    if outcome == native.AT_LIMIT:
        raise timeout("run", limit_s)
    if outcome == native.SPOKEN:
        process.require_word(limit_s)
    if outcome == native.ASTRAY:
        raise CandidateFault(
            Status.WRONG_VALUE, "an output is not in memory that torch has allocated"
        )
    if outcome != native.TIMED:
        raise InfraFault(f"a window failed: the driver answers {outcome - native.DRIVER}")


def _stand(side: str, process: RunnerProcess) -> float:
    """Stop a side's process; the processor time that it has used so far, 0 if it has ended."""
    with blaming(side):
        if process.alive and not process.pause():
            raise MovedFault("does not stand still when it is stopped")
        return process.cpu_seconds() if process.alive else 0.0


def _require_stood(side: str, process: RunnerProcess, before: float) -> None:
    """It may have had itself woken, by a timer, and kept the GPU busy in the other's windows."""
    with blaming(side):
        if process.alive and process.cpu_seconds() > before + _STOPPED_SLACK_S:
            raise MovedFault("worked while another side was timed")


def _layout_number(lent: "Lent", trees: tuple[bytes, ...]) -> tuple[int, bool]:
    """The number of such inputs in the runner, and whether it is yet to be told of them."""
    is_new = trees not in lent.layouts
    return lent.layouts.setdefault(trees, len(lent.layouts)), is_new


def _same(inputs: torch.Tensor, staged: torch.Tensor) -> bool:
    """In words of eight bytes: comparing takes memory for each."""
    return torch.equal(inputs.view(torch.int64), staged.view(torch.int64))


def _suspect(sides: Iterable[str]) -> str:
    """The processes at work outside of every turn: those that are not the judge's.

    Of two an opponent first, which only leaves the comparison: if it was the candidate, the GPU
    will be busy again.
    """
    return next((side for side in sides if side not in {CANDIDATE, *TRUSTED}), CANDIDATE)


def _require_no_company(side: str, process: RunnerProcess) -> None:
    with blaming(side):
        if process.alive:
            require_no_company(process)


def keep_to(process: RunnerProcess, cores: set[int]) -> None:
    """Let its main thread run on these cores only."""
    with contextlib.suppress(ProcessLookupError):  # the next request learns how it ended
        os.sched_setaffinity(process.pid, cores)
