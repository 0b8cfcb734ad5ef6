"""Timing a block on the CPU.

Each process has memory, mapped once, where its inputs land. A block has four steps. Its inputs are
*staged*: the process learns how they will lie there. Then it is stopped, nothing else of the
candidate's may be alive, and the values are written. The clock starts, the process goes on and
*runs* the model, one call each. When it says that it is done the clock stops and the process is
stopped again, and the bytes of a few outputs of the judge's own choice are *read* from its memory.
So nothing can be computed before the clock starts, since the values are not there; nor after it has
stopped, except for its work until it stops, which is charged as if it were inside. A skipped or
late call is wrong with the chance that its call is chosen.

Calls that take no longer than it takes to launch them could be merged into one. Their values are
handed over one by one, while the clock runs: those of the next call come when the outputs of the
last are there (`handover`). Its cost is measured without calls, and subtracted; and no call takes
less than one that only makes an output.

While one side has its turn, the processes of the others are stopped.
"""

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from evolve.core.evaluation import Status
from evolve.core.measurement import middle
from evolve.worker.base.faults import EAGER, CandidateFault, blaming
from evolve.worker.devices import output_snapshot
from evolve.worker.devices.changed_inputs import places_of_changes
from evolve.worker.devices.cpu.handover import Handover
from evolve.worker.devices.stack_sampling import HIDDEN, at_work, get_ready
from evolve.worker.devices.standing import stopped
from evolve.worker.devices.window import (
    SLOWEST_S,
    Block,
    Layout,
    TimedCase,
    places_of,
    require_distinct,
    require_no_company,
    size_in_bytes,
)
from evolve.worker.ipc.memfd import Landing
from evolve.worker.ipc.messages import Done
from evolve.worker.ipc.tensor_buffer import Shared, TensorBuffer
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.sandbox.mappings import mappings_of

if TYPE_CHECKING:
    from evolve.worker.devices.cpu.device import CpuDevice

_STOPPED_SLACK_S = 0.001
_STANDING_SLACK_S = 0.001  # that a process may take to stop; shorter delays are the scheduler's
_REST_S = 0.010
_AGAIN = 0.2  # of the time of the first sample, at least, before another
_REST_SLACK_S = 0.0025


class CpuWindow:
    """See the module. One for each case of a round."""

    holds_back = False

    def __init__(self, device: "CpuDevice") -> None:
        self._device = device
        self._processes: dict[str, RunnerProcess] = {}
        self._used: dict[str, float] = {}  # processor seconds, by side, while others had their turn
        self._empty: list[float] = []  # seconds of blocks of calls that only make outputs

    def warm_up(
        self, process: RunnerProcess, case: TimedCase, layout: Layout, working_set: int
    ) -> None:
        process.reserve(working_set, SLOWEST_S)
        inputs = case.warm.block(-1, case.calls)
        with self._staged(process, inputs) as landing:
            landing.write(inputs.memory)
        process.run(case.warm.index, SLOWEST_S, resume=True)
        shared = Shared(landing.fd, inputs, inputs.memory)
        if not case.warm.effects.changed and self._device.inputs_changed(process, shared, 0):
            self._device.land_elsewhere(process)  # old outputs there would hide new values
        process.drop(SLOWEST_S)

    def rouse(self, process: RunnerProcess, case: TimedCase, layout: Layout) -> None:
        """It has used these cores a moment ago."""

    def idle(self, process: RunnerProcess, case: TimedCase) -> float:
        """Seconds that a block of no calls takes, of a process that stands."""
        if not case.one_by_one:
            return _timed(
                process, partial(process.run, case.warm.index, SLOWEST_S, "nothing", True)
            )
        handover = self._handover(
            process, case, case.layouts[EAGER], case.warm.block(-1, case.calls)
        )
        run = partial(handover.run, case.warm.index, SLOWEST_S)
        self._empty.append(_timed(process, partial(run, "empty")))
        return _timed(process, partial(run, "nothing"))

    def run(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        number: int,
        recorded: bool = False,
        sample_after_s: float = 0.0,
        idles: int = 0,
        is_trusted: bool = False,  # its outputs are taken too: or caches would tell sides apart
        pause_s: float = 0.0,
    ) -> Block:
        inputs, seen, index = case.warm.block(number, case.calls), [""], case.warm.index
        with self._staged(process, inputs) as landing:
            changed = self._changed(process, case, inputs, landing)
            whole = layout + (changed[0] if changed else ())
            buffers = {
                at: output_snapshot.buffers_for(self._device, whole) for at in case.judged(number)
            }
            if sample_after_s:
                get_ready()
            handover = None
            if case.one_by_one:
                handover = self._handover(process, case, whole, inputs, buffers, changed)
            else:
                landing.write(inputs.memory)
        start = time.perf_counter()
        if handover:
            done = handover.run(index, case.limit_s)
        else:
            with self._glancing(process, sample_after_s) as seen:
                done = process.run(index, case.limit_s, resume=True)
        end = time.perf_counter()
        used = process.cpu_seconds()
        require_no_company(process)
        with stopped(process) as used_at_stop:
            late = max(used_at_stop - used, time.perf_counter() - end - _STANDING_SLACK_S)
            require_distinct(done, case.calls, layout, case.warm.effects.kept)
            self._require_apart(process, done, case, layout, landing)
            done = _with_changes(done, case.calls, layout, changed)
            if handover:
                handover.require_same(done, case.warm.effects.kept)
            else:
                for at, raw in buffers.items():
                    outputs = places_of(done, at, case.calls, whole)
                    output_snapshot.read_all(self._device, process, outputs, raw)
        samples = {at: output_snapshot.as_tensors(raw, whole) for at, raw in buffers.items()}
        idle = tuple(self.idle(process, case) for _ in range(idles))
        return Block(end - start, done.seconds, number, samples, late, "".join(seen), idle)

    def _handover(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        inputs: TensorBuffer,
        buffers: Mapping[int, list[Tensor]] | None = None,
        changed: Sequence[Layout] = (),
    ) -> Handover:
        landing = self._device.landing(process, inputs.size)
        pieces = landing.pieces(inputs.memory, inputs.bounds())
        page = self._device.turns(process)
        places = [tuple(at.address for at in call) for call in changed]
        return Handover(self._device, process, page, pieces, layout, buffers or {}, places)

    def _changed(
        self, process: RunnerProcess, case: TimedCase, inputs: TensorBuffer, landing: Landing
    ) -> list[Layout]:
        """For each call the places of the inputs that it may change; none if it may not."""
        if not case.warm.effects.changed:
            return []
        start = self._device.inputs_at(process, landing.fd, inputs.size)
        calls = places_of_changes(inputs, case.warm.effects.changed)
        return [tuple(replace(at, address=start + at.address) for at in call) for call in calls]

    @contextlib.contextmanager
    def _glancing(self, process: RunnerProcess, after_s: float) -> Iterator[list[str]]:
        """Stop it after that time, if there is one; the code at work then.

        If none was, again after a part of it: on a busy host it may have had no core by then.
        """
        seen: list[str] = []
        if not after_s:
            yield seen
            return
        over = threading.Event()

        def take_sample() -> None:
            wait_s = after_s
            while not any(seen):
                moment = time.perf_counter() + wait_s
                wait_s = random.uniform(_AGAIN, 1.0) * after_s
                # A sleeping process is woken when a core is free, so when none computes.
                while time.perf_counter() < moment:
                    time.sleep(0)  # lets our other thread go on
                    if over.is_set():
                        return
                process.pause()
                try:
                    seen.append(self._at_work(process))
                finally:
                    process.resume()

        thread = threading.Thread(target=take_sample)
        thread.start()
        try:
            yield seen
        finally:
            over.set()
            thread.join()  # or it would stop the process at another time

    def _at_work(self, process: RunnerProcess) -> str:
        """As the function of that name; nothing if this host allows no such look."""
        who = at_work(process.pid)
        is_host = who == HIDDEN and at_work(self._processes[EAGER].pid) == HIDDEN
        return "" if is_host else who

    def _require_apart(
        self,
        process: RunnerProcess,
        done: Done,
        case: TimedCase,
        layout: Layout,
        landing: Landing,
    ) -> None:
        """No output lies in the inputs, except where the reference's does."""
        aliased, width = case.warm.effects.aliased, len(layout)
        places = [
            (address, size_in_bytes(layout[at % width]))
            for at, address in enumerate(done.addresses)
            if at % width not in aliased
        ]
        output_snapshot.require_apart(places, mappings_of(process.pid, landing.fd))

    @contextlib.contextmanager
    def _staged(self, process: RunnerProcess, inputs: TensorBuffer) -> Iterator[Landing]:
        """It is ready for inputs laid out like these; inside nothing of the candidate's moves."""
        landing = self._device.landing(process, inputs.size)
        process.resume()
        process.stage(Shared(landing.fd, inputs, inputs.memory), SLOWEST_S)
        with stopped(process):
            yield landing

    def charges(self, blocks: list[Block], reference: list[Block]) -> list[float]:
        """Seconds of work after the clock had stopped, beyond the reference's.

        If calls are given one by one, no block is shorter than one that only makes outputs.
        """
        usual = statistics.median(block.late for block in reference)
        least = middle(self._empty) if self._empty else 0.0
        return [max(0.0, block.late - usual, least - block.run) for block in blocks]

    @contextlib.contextmanager
    def alone(self, side: str, processes: Mapping[str, RunnerProcess]) -> Iterator[None]:
        self._processes = dict(processes)
        others = {name: process for name, process in processes.items() if name != side}
        for process in others.values():
            process.pause()
        before = {name: process.cpu_seconds() for name, process in others.items()}
        self._require_no_company(others)
        yield
        for name, process in others.items():
            used = process.cpu_seconds() - before[name]
            self._used[name] = self._used.get(name, 0.0) + used

    def _require_no_company(self, processes: Mapping[str, RunnerProcess]) -> None:
        for name, process in processes.items():
            with blaming(name):
                require_no_company(process)

    def settle(self) -> None:
        """No side may have worked in another's turn, nor work now, without a request."""
        for name, used in self._used.items():
            with blaming(name):
                _require_idle(used, _STOPPED_SLACK_S, "while others were timed")
        before = {name: process.cpu_seconds() for name, process in self._processes.items()}
        for process in self._processes.values():
            process.resume()
        time.sleep(_REST_S)
        for name, process in self._processes.items():
            with blaming(name):
                used = process.cpu_seconds() - before[name]
                _require_idle(used, _REST_SLACK_S, "when nothing was asked of it")


def _with_changes(done: Done, calls: int, layout: Layout, changed: Sequence[Layout]) -> Done:
    """The addresses of each call's outputs, followed by those of changed inputs."""
    if not changed:
        return done
    addresses = [
        address
        for call in range(calls)
        for address in (
            *places_of(done, call, calls, layout),
            *(at.address for at in changed[call]),
        )
    ]
    return Done(done.seconds, tuple(addresses))


def _timed(process: RunnerProcess, run: Callable[[], object]) -> float:
    """Seconds; the process stands before and after it."""
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    process.pause()
    return seconds


def _require_idle(used: float, allowed: float, when: str) -> None:
    if used > allowed:
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            f"the process used {used * 1e3:.1f} ms of processor time {when}; threads that spin or "
            "work on after forward has returned are not allowed",
        )
