"""Timing a block on the CPU.

A block has three steps. Its inputs, values that the process has never seen, are *staged* (mapped);
they are *run* through the model, one call each; and the bytes of a few outputs of the referee's own
choice are *read* from the process's memory without its help. The time of a block is the wall time
of the run, plus what the process used outside of it beyond what the reference's process, which runs
trusted code, used there: processor time until its turn is over, and wall time while it was handed
its inputs, in which a process that it started could have worked for it. So work done before the
clock starts or after it stops is charged as if it were inside, and what is skipped or late is wrong
with the chance that its call is chosen.

While one side has its turn, the processes of the others are stopped.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping

from evolve.core.evaluation import Status
from evolve.worker import custody
from evolve.worker.device import Device
from evolve.worker.faults import CandidateFault, blaming
from evolve.worker.mappings import mappings_of
from evolve.worker.process import RunnerProcess
from evolve.worker.window import (
    SLOWEST_S,
    Block,
    Layout,
    TimedCase,
    places_of,
    require_distinct,
    size_in_bytes,
)

_STAGING_SLACK = 0.1  # of the reference's; less is what the scheduler does
_STOPPED_SLACK_S = 0.001
_REST_S = 0.010
_REST_SLACK_S = 0.0025


class CpuWindow:
    """See the module. One for each case of a sitting."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._processes: dict[str, RunnerProcess] = {}
        self._used: dict[str, float] = {}  # processor seconds, by side, while others had their turn

    def warm_up(
        self, process: RunnerProcess, case: TimedCase, layout: Layout, working_set: int
    ) -> None:
        process.reserve(working_set, SLOWEST_S)
        with self._device.share(case.warm.block(-1, case.calls)) as inputs:
            process.stage(inputs, SLOWEST_S)
            process.run(case.warm.index, SLOWEST_S)
        process.drop(SLOWEST_S)

    def idle(self, process: RunnerProcess, case: TimedCase, layout: Layout) -> float:
        start = time.perf_counter()
        process.run(case.warm.index, SLOWEST_S, idle=True)
        return time.perf_counter() - start

    def run(
        self,
        process: RunnerProcess,
        case: TimedCase,
        layout: Layout,
        number: int,
        recorded: bool = False,
    ) -> Block:
        sampled = case.warm.judged(number, case.calls)
        buffers = [custody.buffers_for(self._device, layout) for _ in sampled]
        with self._device.share(case.warm.block(number, case.calls)) as inputs:
            handed = time.perf_counter()
            before = process.cpu_seconds()
            process.stage(inputs, SLOWEST_S)
            staged = process.cpu_seconds()
            start = time.perf_counter()
            done = process.run(case.warm.index, SLOWEST_S)
            end = time.perf_counter()
            ran = process.cpu_seconds()
            require_distinct(done, case.calls, layout)
            for at, raw in zip(sampled, buffers, strict=True):
                outputs = places_of(done, at, case.calls, layout)
                custody.read_all(self._device, process, outputs, raw)
            places = [
                (address, size_in_bytes(at))
                for address, at in zip(done.addresses, case.calls * layout, strict=True)
            ]
            custody.require_apart(places, mappings_of(process.pid, inputs.fd))
        process.drop(SLOWEST_S)
        apart = (start - handed, staged - before, process.cpu_seconds() - ran)
        samples = {
            at: custody.as_tensors(raw, layout) for at, raw in zip(sampled, buffers, strict=True)
        }
        return Block(end - start, done.seconds, number, samples, apart)

    def charges(self, blocks: list[Block], reference: list[Block]) -> list[float]:
        """What was used outside of the run beyond the reference's, in seconds."""
        waited, staged, ended = (_median(reference, step) for step in range(3))
        late = _median(blocks, 0) - waited
        if late < _STAGING_SLACK * waited:
            late = 0.0
        return [
            max(late, block.apart[1] - staged, 0.0) + max(0.0, block.apart[2] - ended)
            for block in blocks
        ]

    @contextlib.contextmanager
    def alone(self, side: str, processes: Mapping[str, RunnerProcess]) -> Iterator[None]:
        self._processes = dict(processes)
        others = {name: process for name, process in processes.items() if name != side}
        for process in others.values():
            process.pause()
        before = {name: process.cpu_seconds() for name, process in others.items()}
        self._require_no_company(others)
        processes[side].resume()
        yield
        processes[side].pause()  # what it would do now, it would do in the turn of the next
        for name, process in others.items():
            used = process.cpu_seconds() - before[name]
            self._used[name] = self._used.get(name, 0.0) + used
        self._require_no_company(processes)

    def _require_no_company(self, processes: Mapping[str, RunnerProcess]) -> None:
        for name, process in processes.items():
            with blaming(name):
                _require_no_company(process)

    def settle(self) -> None:
        """No side may have worked in another's turn, nor work now, when nobody asks it to."""
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


def _median(blocks: list[Block], step: int) -> float:
    return statistics.median(block.apart[step] for block in blocks)


def _require_idle(used: float, allowed: float, when: str) -> None:
    if used > allowed:
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            f"the process used {used * 1e3:.1f} ms of processor time {when}; threads that spin or "
            "work on after forward has returned are not allowed",
        )


def _require_no_company(process: RunnerProcess) -> None:
    if process.has_company():
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            "processes that the candidate has started are alive while it is timed",
        )
