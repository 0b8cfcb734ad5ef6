"""Timing a block on the CPU.

A block has three steps. Its inputs, values that the process has never seen, are *staged* (mapped);
they are *run* through the model, one call each; and the bytes of a few outputs of the referee's own
choice are *read* from the process's memory without its help. The time of a block is the wall time
of the run, plus the processor time that the process used in the two other steps beyond what the
reference's process, which runs trusted code, used in them. So work done before the clock starts or
after it stops is charged as if it were inside, and what is skipped or late is wrong with the chance
that its call is chosen.
"""

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping

from evolve.core.evaluation import Status
from evolve.worker import custody
from evolve.worker.device import Device
from evolve.worker.faults import CandidateFault, blaming
from evolve.worker.process import RunnerProcess
from evolve.worker.window import SLOWEST_S, Block, Layout, TimedCase, require_layout

_IDLE_SLACK_S = 0.002
_IDLE_SHARE = 0.05


class CpuWindow:
    """See the module. One for each case of a sitting."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # Per side: seconds for which others were timed, processor seconds that it used then.
        self._off: dict[str, tuple[float, float]] = {}

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

    def run(self, process: RunnerProcess, case: TimedCase, layout: Layout, number: int) -> Block:
        sampled = case.warm.judged(number, case.calls)
        buffers = [custody.buffers_for(self._device, layout) for _ in sampled]
        with self._device.share(case.warm.block(number, case.calls)) as inputs:
            before = process.cpu_seconds()
            process.stage(inputs, SLOWEST_S)
            staged = process.cpu_seconds()
            start = time.perf_counter()
            done = process.run(case.warm.index, SLOWEST_S)
            end = time.perf_counter()
            ran = process.cpu_seconds()
            addresses = require_layout(done, case.calls, layout)
            for at, raw in zip(sampled, buffers, strict=True):
                custody.read_all(self._device, process, addresses[at], raw)
            read = process.cpu_seconds()
        process.drop(SLOWEST_S)
        samples = {
            at: custody.as_tensors(raw, layout) for at, raw in zip(sampled, buffers, strict=True)
        }
        return Block(end - start, done.seconds, number, samples, (staged - before, read - ran))

    def charges(self, blocks: list[Block], reference: list[Block]) -> list[float]:
        """Processor seconds outside of the run, beyond the reference's."""
        usual = [statistics.median(block.apart[step] for block in reference) for step in (0, 1)]
        return [
            sum(max(0.0, own - other) for own, other in zip(block.apart, usual, strict=True))
            for block in blocks
        ]

    @contextlib.contextmanager
    def alone(self, side: str, processes: Mapping[str, RunnerProcess]) -> Iterator[None]:
        others = {name: process for name, process in processes.items() if name != side}
        before = {name: process.cpu_seconds() for name, process in others.items()}
        start = time.perf_counter()
        yield
        lasted = time.perf_counter() - start
        for name, process in others.items():
            with blaming(name):
                off, used = self._off.get(name, (0.0, 0.0))
                self._off[name] = off + lasted, used + process.cpu_seconds() - before[name]
                _require_no_company(process)

    def settle(self) -> None:
        for name, (lasted, used) in self._off.items():
            with blaming(name):
                _require_idle(lasted, used)


def _require_idle(lasted: float, used: float) -> None:
    """A side that is not asked has to leave the cores to the one that is.

    Summed up over a sitting: a single block may be too short to tell.
    """
    if used > _IDLE_SLACK_S + _IDLE_SHARE * lasted:
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            f"the process used {used * 1e3:.1f} ms of processor time while others were timed for "
            f"{lasted * 1e3:.1f} ms; threads that spin or work on after forward has returned are "
            "not allowed",
        )


def _require_no_company(process: RunnerProcess) -> None:
    if process.has_company():
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            "processes that the candidate has started are alive while it is timed",
        )
