"""The trusted clock: wall time around blocks of calls, taken outside of the processes measured.

A block has three steps. Its inputs, values that the process has never seen, are *staged* (mapped);
they are *run* through the model, one call each; and the bytes of one output of the referee's own
choice are *read* from the process's memory without its help. Which one is taken it never learns.
The time of a block is the wall time of the run, plus the processor time that the process used in
the two other steps beyond what the reference's process, which runs trusted code, used in them. So
work done before the clock starts or after it stops is charged as if it were inside, and what is
skipped or late is wrong with the chance that its call is chosen.

What a block of no calls costs is measured on the reference's process and taken off every side.

Processes come in *pairs*, one fresh process for every side; a pair is the unit of the statistics,
because most of the variance sits between processes.
"""

import contextlib
import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from evolve.core.evaluation import Status
from evolve.worker import custody
from evolve.worker.budget import judge
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.faults import CandidateFault
from evolve.worker.process import RunnerProcess
from evolve.worker.warm import BLOCKS, WarmCase
from evolve.worker.wire import TensorAt

CANDIDATE, EAGER = "candidate", "eager"
_WARM_BLOCKS = 1
_IDLE_BLOCKS = 9
_IDLE_SLACK_S = 0.002
_IDLE_SHARE = 0.05
_SLOWEST_S = 60.0
_LARGEST_RESERVE = 2 << 30

Start = Callable[[], RunnerProcess]
Layout = tuple[TensorAt, ...]


@dataclass(slots=True)
class Block:
    """One timed block, in seconds; `number` and `at` say which call's output `sample` is."""

    run: float  # wall time, outside
    inside: float  # wall time as the process tells it
    staging: float  # processor time
    reading: float  # processor time of the process while its output was read
    number: int
    at: int
    sample: list[Tensor]


@dataclass(slots=True)
class TimeOff:
    """Seconds for which other sides were timed, and processor seconds that this one used then."""

    lasted: float = 0.0
    used: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCase:
    """A case to be timed: calls per block, and the layout of each side's outputs."""

    warm: WarmCase
    calls: int
    layouts: Mapping[str, Layout]


@dataclass(slots=True)
class PairTimes:
    """Seconds per call of every side's blocks, by case, and what was noticed on the way."""

    blocks: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    samples: list[tuple[str, TimedCase, Block]] = field(default_factory=list)
    overhead: dict[str, float] = field(default_factory=dict)
    mismatches: list[str] = field(default_factory=list)

    def log_ratio(self, case: str, side: str) -> float:
        """Log of how many times faster the candidate is than another side, in this pair."""
        times = self.blocks[case]
        return math.log(statistics.median(times[side]) / statistics.median(times[CANDIDATE]))


def time_pair(device: CpuDevice, starts: Mapping[str, Start], cases: list[TimedCase]) -> PairTimes:
    """Time every side once, in fresh processes and interleaved blocks.

    `starts` gives for each side a process with its models constructed. Needs the host to itself.

    Raises:
        CandidateFault: the candidate failed.
        SideFault: another side did.
    """
    rng = random.Random(secrets.randbits(64))
    result = PairTimes()
    with contextlib.ExitStack() as stack:
        processes = {}
        for side in rng.sample(list(starts), len(starts)):
            with _blaming(side):
                processes[side] = stack.enter_context(starts[side]())
        for case in cases:
            _time_case(device, processes, case, rng, result)
    return result


class SideFault(Exception):
    """A side that is not on trial (a baseline or an opponent) failed."""

    def __init__(self, side: str, fault: CandidateFault) -> None:
        super().__init__(f"{side} failed in the timed run: {fault.feedback}")
        self.side = side
        self.fault = fault


@contextlib.contextmanager
def _blaming(side: str) -> Iterator[None]:
    """What fails inside is this side's doing."""
    try:
        yield
    except CandidateFault as fault:
        if side != CANDIDATE:
            raise SideFault(side, fault) from fault
        raise


def _time_case(
    device: CpuDevice,
    processes: Mapping[str, RunnerProcess],
    case: TimedCase,
    rng: random.Random,
    result: PairTimes,
) -> None:
    for side, process in processes.items():
        with _blaming(side):
            _warm_up(process, case)
    overhead = _round_trip(processes[EAGER], case)
    orders = {side: rng.sample(range(BLOCKS), BLOCKS) for side in processes}
    buffers = {side: _buffers(case.layouts[side]) for side in processes}
    blocks: dict[str, list[Block]] = {side: [] for side in processes}
    idle = {side: TimeOff() for side in processes}
    for side in _interleaved(list(processes), rng):
        number = orders[side][len(blocks[side])]
        before = {other: p.cpu_seconds() for other, p in processes.items() if other != side}
        with _blaming(side):
            block = _run_block(device, processes[side], case, side, number, buffers[side])
        blocks[side].append(block)
        for other, seconds in before.items():
            idle[other].used += processes[other].cpu_seconds() - seconds
            idle[other].lasted += block.run
            with _blaming(other):
                _require_alone(processes[other])
    for side, off in idle.items():  # summed up: a single block may be too short to tell
        with _blaming(side):
            _require_idle(off)
    name = case.warm.case.name
    result.overhead[name] = overhead
    result.blocks[name] = {}
    for side, taken in blocks.items():
        extra = _charges(taken, blocks[EAGER])
        times = [
            (block.run - overhead + charge) / case.calls
            for block, charge in zip(taken, extra, strict=True)
        ]
        with _blaming(side):
            _require_positive(times)
        result.blocks[name][side] = times
        if side != EAGER:
            result.samples += [(side, case, block) for block in taken]
    result.mismatches += _mismatches(name, blocks[CANDIDATE], overhead)


def _warm_up(process: RunnerProcess, case: TimedCase) -> None:
    process.reserve(_working_set(case), _SLOWEST_S)
    for _ in range(_WARM_BLOCKS):
        process.stage(case.warm.block(-1, case.calls), _SLOWEST_S)
        process.run(case.warm.index, _SLOWEST_S)
        process.drop(_SLOWEST_S)


def _charges(blocks: list[Block], reference: list[Block]) -> list[float]:
    """Processor seconds outside of the run, beyond the reference's."""
    staging = statistics.median(block.staging for block in reference)
    reading = statistics.median(block.reading for block in reference)
    return [
        max(0.0, block.staging - staging) + max(0.0, block.reading - reading) for block in blocks
    ]


def _require_idle(off: TimeOff) -> None:
    """A side that is not asked has to leave the cores to the one that is."""
    if off.used > _IDLE_SLACK_S + _IDLE_SHARE * off.lasted:
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            f"the process used {off.used * 1e3:.1f} ms of processor time while others were timed "
            f"for {off.lasted * 1e3:.1f} ms; threads that spin or work on after forward has "
            "returned are not allowed",
        )


def _require_alone(process: RunnerProcess) -> None:
    if process.has_company():
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            "processes that the candidate has started are alive while it is timed",
        )


def _working_set(case: TimedCase) -> int:
    """Bytes of heap that a block may need: its outputs (twice: malloc leaves gaps), temporaries."""
    output = sum(custody.size_in_bytes(at) for at in case.layouts[EAGER])
    temporaries = 4 * (case.warm.input_bytes + output)
    return min(2 * case.calls * output + temporaries + (16 << 20), _LARGEST_RESERVE)


def _round_trip(reference: RunnerProcess, case: TimedCase) -> float:
    """Seconds that a block of no calls takes, in the process that runs trusted code."""
    seconds = []
    for _ in range(_IDLE_BLOCKS):
        start = time.perf_counter()
        reference.run(case.warm.index, _SLOWEST_S, idle=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _interleaved(sides: list[str], rng: random.Random) -> list[str]:
    """Each side `BLOCKS` times; every order of sides is followed by its reverse (ABBA)."""
    sequence: list[str] = []
    for _ in range(BLOCKS // 2):
        order = rng.sample(sides, len(sides))
        sequence += order + order[::-1]
    return sequence


def _buffers(layout: Layout) -> list[list[Tensor]]:
    return [[custody.buffer_for(at) for at in layout] for _ in range(BLOCKS)]


def _run_block(
    device: CpuDevice,
    process: RunnerProcess,
    case: TimedCase,
    side: str,
    number: int,
    buffers: list[list[Tensor]],
) -> Block:
    layout = case.layouts[side]
    slab = case.warm.block(number, case.calls)
    at = secrets.randbelow(case.calls)
    raw = buffers.pop()
    before = process.cpu_seconds()
    process.stage(slab, _SLOWEST_S)
    staged = process.cpu_seconds()
    start = time.perf_counter()
    done = process.run(case.warm.index, _SLOWEST_S)
    end = time.perf_counter()
    ran = process.cpu_seconds()
    if len(done.addresses) != case.calls * len(layout):
        raise CandidateFault(Status.WRONG_TREE, "a timed block gave another number of outputs")
    addresses = done.addresses[at * len(layout) : (at + 1) * len(layout)]
    for address, buffer in zip(addresses, raw, strict=True):
        custody.read_into(device, process.pid, address, buffer)
    read = process.cpu_seconds()
    if all(buffer.numel() for buffer in raw) and _shared(done.addresses, len(layout)):
        raise CandidateFault(Status.ALIASED, "outputs of different calls share memory")
    process.drop(_SLOWEST_S)
    sample = [custody.as_tensor(buffer, place) for buffer, place in zip(raw, layout, strict=True)]
    return Block(end - start, done.seconds, staged - before, read - ran, number, at, sample)


def _shared(addresses: tuple[int, ...], per_call: int) -> bool:
    calls = [set(addresses[i : i + per_call]) for i in range(0, len(addresses), per_call)]
    return len(set().union(*calls)) < sum(map(len, calls))


def _require_positive(times: list[float]) -> None:
    if min(times) <= 0:
        raise CandidateFault(
            Status.TIMING_UNBOUNDED, "the calls took less time than the clock's own overhead"
        )


def judge_samples(pair: PairTimes) -> None:
    """Judge one output of every side and case; needs cores, so not while anything is timed."""
    for side, case, block in pair.samples:
        with _blaming(side):
            _judge_sample(case, block)
    pair.samples.clear()


def _judge_sample(case: TimedCase, block: Block) -> None:
    check = case.warm.block_check(block.number, block.at, case.calls)
    verdict = judge(case.warm.case, block.sample, check.expected.spec, check.expected, check.tree())
    if verdict.status is not Status.CORRECT:
        raise CandidateFault(
            verdict.status,
            "an output of the timed run was wrong although those of the checks were right (is "
            f"work left over when forward returns, or kept from call to call?): {verdict.feedback}",
        )


def _mismatches(case: str, blocks: list[Block], overhead: float) -> list[str]:
    """Where the time claimed inside of the process does not fit that taken outside."""
    found = []
    for block in blocks:
        outside = block.run - overhead
        if not 0.5 * outside - 1e-3 <= block.inside <= block.run + 1e-4:
            found.append(
                f"{case}: {block.inside * 1e3:.3g} ms claimed, {outside * 1e3:.3g} ms measured"
            )
    return found
