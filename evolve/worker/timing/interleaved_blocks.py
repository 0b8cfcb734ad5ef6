"""The trusted clock: wall time around blocks of calls, taken outside of the processes measured.

How one block is timed is the device's affair (`window`); the common part is here. In a *round*,
every side gets a process, a fresh one or one of the reference that has not served this comparison,
and their blocks are interleaved. Outputs of the judge's own choice are judged afterwards: a process
never learns which. The overhead of an empty block is measured on the reference's process and
subtracted on every side.

A round is the unit of the statistics. Blocks are none: on every device much of the variance sits
between processes (on an H200, 16 rounds in one pair of processes gave intervals of 0.3 to 1 % that
excluded 1.0 in 12 of 45 ties).
"""

import contextlib
import itertools
import math
import random
import secrets
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch

from evolve.core.evaluation import Status
from evolve.core.measurement import middle
from evolve.worker.base.faults import CANDIDATE, EAGER, TRUSTED, CandidateFault, blaming
from evolve.worker.base.infra import CrowdedFault
from evolve.worker.correctness.compare import Judgement, judge, worst
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import Block, TimedCase, size_in_bytes
from evolve.worker.processes.runner_process import RunnerProcess, close_all
from evolve.worker.session.prepared_task import Check

_MAX_RESERVE = 2 << 30
# Outputs of a large case that a round takes of a side, at most: of blocks that are always judged
# two, of one a call that was drawn; and of the candidate those of another family.
_TAKEN_OF_CANDIDATE, _TAKEN_OF_OPPONENT = 4, 3
_PAUSE_S = 1e-3  # besides the block's own time, for running work to end
_USABLE_SHARE = 0.5  # of the reference's block, unshortened: the window's own cost is below it

Start = Callable[[], RunnerProcess]


class TooShortFault(CandidateFault):
    """A block left no time: once or twice, the overhead taken off may be that of a busy host."""


@dataclass(slots=True)
class PairTimes:
    """Seconds per call of every side's blocks in one round, by case."""

    blocks: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    overhead: dict[str, float] = field(default_factory=dict)
    singles: dict[str, dict[str, float]] = field(default_factory=dict)  # of a block of one call
    numbers: dict[str, list[int]] = field(default_factory=dict)  # of the blocks

    def log_ratio(self, case: str, side: str) -> float:
        """Log of how many times faster the candidate is than another side."""
        times = self.blocks[case]
        return math.log(middle(times[side]) / middle(times[CANDIDATE]))

    def uncertainty(self, case: str, side: str) -> float:
        """Standard error of that, as far as the blocks of this round tell."""
        times = self.blocks[case]
        return math.hypot(*(_error_of_middle(times[one]) for one in (CANDIDATE, side)))


def _error_of_middle(times: list[float]) -> float:
    """Relative standard error of `middle`, by the median absolute deviation: of normal times."""
    centre = middle(times)
    deviation = statistics.median(abs(time - centre) for time in times)
    return 1.2 * 1.4826 * deviation / centre / math.sqrt(len(times))


def variation(times: list[float]) -> float:
    """Standard deviation relative to the mean."""
    return statistics.stdev(times) / statistics.fmean(times)


@dataclass(slots=True)
class MeasurementRound:
    """The result of a round: its units, outputs to be judged, and observations."""

    pair: PairTimes
    samples: list[tuple[str, TimedCase, Block]] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    seen: dict[str, list[str]] = field(default_factory=dict)  # by case (`stack_sampling`)


def with_pages(
    device: Device, cases: list[TimedCase], sides: Collection[str], rounds: int
) -> list[TimedCase]:
    """The cases, once the host has memory for outputs that wait there; or they wait elsewhere."""
    sizes = [
        size_in_bytes(at)
        for case in cases
        if case.on_host
        for side in sides
        for at in case.layouts[side]
        for _ in range(most_taken([side]))
    ]
    if not sizes or device.lock_pages(rounds * sizes):
        return cases
    return [replace(case, on_host=False) for case in cases]


def most_taken(sides: Iterable[str]) -> int:
    """Outputs of a large case that a round takes of these sides, at most."""
    return sum(
        0 if side in TRUSTED else _TAKEN_OF_CANDIDATE if side == CANDIDATE else _TAKEN_OF_OPPONENT
        for side in sides
    )


@contextlib.contextmanager
def ready_processes(
    starts: Mapping[str, Start],
    warm_up: Callable[[str, RunnerProcess], None],
    rounds: int,
    ends: Mapping[str, Callable[[RunnerProcess], list[RunnerProcess]]],
) -> Iterator[list[dict[str, RunnerProcess]]]:
    """For each of some rounds a process of every side, warm and ready; they end with the context.

    Args:
        starts: For each side a function that gives a process with its models constructed.
        warm_up: Has the process of a side ready for the timed cases.
        rounds: How many.
        ends: By side, which processes to close, given one that is no longer needed; if none is
            given, that one.

    Raises:
        CandidateFault: the candidate failed.
        SideFault: another side did.
    """
    with ThreadPoolExecutor(len(starts) * rounds) as pool:
        tables = [
            {side: pool.submit(_ready, side, start, warm_up) for side, start in starts.items()}
            for _ in range(rounds)
        ]
    try:
        yield [{side: future.result() for side, future in table.items()} for table in tables]
    finally:
        started = [item for table in tables for item in table.items()]
        ready = [(side, future.result()) for side, future in started if future.exception() is None]
        ended = [ends[side](process) if side in ends else [process] for side, process in ready]
        close_all(itertools.chain(*ended))


def _ready(side: str, start: Start, warm_up: Callable[[str, RunnerProcess], None]) -> RunnerProcess:
    with blaming(side), torch.no_grad():  # which is a setting of each thread
        with contextlib.ExitStack() as on_failure:
            process = on_failure.enter_context(start())
            warm_up(side, process)
            on_failure.pop_all()
        return process


def warm_up(device: Device, cases: list[TimedCase], side: str, process: RunnerProcess) -> None:
    """Bring a side's process into the state in which it is timed on these cases."""
    process.resume()  # one that has served a round may stand since its last block
    for case in cases:
        device.window().warm_up(process, case, case.layouts[side], _working_set(case))


def measure_round(
    device: Device, processes: Mapping[str, RunnerProcess], cases: list[TimedCase]
) -> MeasurementRound:
    """Time the sides in interleaved blocks. Needs the device to itself.

    Raises:
        CandidateFault: the candidate failed.
        SideFault: another side did.
    """
    rng = random.Random(secrets.randbits(64))
    result = MeasurementRound(PairTimes())
    for case in cases:
        _time_case(device, processes, case, rng, result)
    return result


def _time_case(
    device: Device,
    processes: Mapping[str, RunnerProcess],
    case: TimedCase,
    rng: random.Random,
    result: MeasurementRound,
) -> None:
    window = device.window()
    order = case.warm.draw_blocks(case.blocks, case.calls, rng)
    case = replace(case, drawn=case.warm.draw_call(order, case.calls, rng))
    blocks: dict[str, list[Block]] = {side: [] for side in processes}
    singles: dict[str, float] = {}
    each = min(device.turn_blocks, case.blocks // 2)
    sequence = _turns(case, list(processes), each, window.holds_back, rng)
    for side, entries in sequence:
        layout, process, is_trusted = case.layouts[side], processes[side], side in TRUSTED
        with window.alone(side, processes), blaming(side):
            window.rouse(process, case, layout)
            for entry in entries:
                number = order[len(blocks[side])] if entry.number is None else entry.number
                sample_after_s = _moment(blocks[side], rng) if entry.is_sampled else 0.0
                pause_s = _pause_s(blocks[side]) if entry.is_late else 0.0
                asked = replace(case, calls=1) if number == case.warm.single else case
                block = window.run(process, asked, layout, number, sample_after_s=sample_after_s,
                                   idles=side == EAGER and entry.number is None,
                                   is_trusted=is_trusted, pause_s=pause_s)  # fmt: skip
                if is_trusted:
                    block = replace(block, samples={})  # each may take gigabytes
                if entry.number is None:
                    blocks[side].append(block)
                elif side == CANDIDATE:
                    result.samples.append((CANDIDATE, asked, block))
                    if entry.is_sampled:
                        result.seen.setdefault(case.warm.case.name, []).append(block.seen)
                if number == case.warm.single:
                    singles[side] = block.run
    window.settle()
    overheads = _overheads(blocks[EAGER])
    overhead, name = middle(overheads), case.warm.case.name
    for side, taken in blocks.items():
        extra = window.charges(taken, blocks[EAGER])
        times = [
            (block.run - own + charge) / case.calls
            for block, own, charge in zip(taken, overheads, extra, strict=True)
        ]
        with blaming(side):
            _require_positive(middle(times), overhead, _longest(case, blocks[EAGER]))
        result.pair.blocks.setdefault(name, {})[side] = times
        if side != EAGER:
            result.samples += [(side, case, block) for block in taken]
    result.pair.overhead[name] = overhead
    result.pair.numbers[name] = order
    result.pair.singles[name] = {side: run - overhead for side, run in singles.items()}
    result.mismatches += _mismatches(name, blocks[CANDIDATE], overhead)


def _overheads(reference: list[Block]) -> list[float]:
    """The overhead of a window at each of the sides' blocks, from empty blocks near it.

    It drifts: on an H100's virtual host by 60 us of 600 in tens of milliseconds, for all alike.
    """
    idle = [statistics.fmean(block.idle) for block in reference]
    return [statistics.median(idle[max(0, at - 2) : at + 3]) for at in range(len(idle))]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A block of a side's turn: the next that is scored, or (not scored) one of that number."""

    number: int | None = None
    is_sampled: bool = False
    is_late: bool = False  # its inputs are held back for a while


_Turn = tuple[str, list[_Entry]]


def _moment(blocks: Sequence[Block], rng: random.Random) -> float:
    """Seconds after which a block like these is under way."""
    return rng.uniform(0.1, 0.9) * min(block.run for block in blocks)


def _pause_s(blocks: Sequence[Block]) -> float:
    """Seconds in which all that was launched in a block like these has been done."""
    return _PAUSE_S + 2 * max(block.run for block in blocks)


def _turns(
    case: TimedCase, sides: list[str], each: int, holds_back: bool, rng: random.Random
) -> list[_Turn]:
    """Turns of the sides, of `each` scored blocks, and at secret places blocks that are not scored.

    Those are one of other input families, and one of a single call: work that is merged over the
    calls of a block, or right for the task's own values only, shows there. And stack_samples.
    Two turns of a side that follow one another are one: to begin one takes as long as a block.
    """
    turns: list[_Turn] = [
        (side, each * [_Entry()]) for side in _interleaved(sides, case.blocks // each, rng)
    ]
    if case.calls > 1 and not case.one_by_one:
        for side in (CANDIDATE, EAGER):
            _, entries = rng.choice([turn for turn in turns if turn[0] == side])
            entries.insert(rng.randrange(len(entries) + 1), _Entry(case.warm.single))
    own = [entries for side, entries in turns if side == CANDIDATE]
    for entry in _unscored(case, holds_back and case.calls > 1, rng):
        entries = rng.choice(own)
        first = entries.index(_Entry()) + 1 if entries is own[0] else 0  # tells how long a block is
        entries.insert(rng.randrange(first, len(entries) + 1), entry)
    following = itertools.groupby(turns, key=lambda turn: turn[0])
    return [(side, [entry for _, some in group for entry in some]) for side, group in following]


def _unscored(case: TimedCase, is_late: bool, rng: random.Random) -> list[_Entry]:
    """Further blocks of the candidate's."""
    found = [
        _Entry(number, is_sampled=True)
        for number in rng.sample(case.warm.sampled_blocks, case.stack_samples)
    ]
    if is_late:
        found.append(_Entry(case.warm.late_block(case.calls, rng), is_late=True))
    other = case.warm.other_block()
    return found if other is None else [*found, _Entry(other)]


def _working_set(case: TimedCase) -> int:
    """Bytes of heap that a block may need: its outputs (twice: malloc leaves gaps), temporaries."""
    output = sum(map(size_in_bytes, case.layouts[EAGER]))
    temporaries = 4 * (case.warm.input_bytes + output)
    return min(2 * case.calls * output + temporaries + (16 << 20), _MAX_RESERVE)


def _interleaved(sides: list[str], turns: int, rng: random.Random) -> list[str]:
    """Each side so many times, an even number; every order is followed by its reverse (ABBA)."""
    assert turns % 2 == 0, turns
    sequence: list[str] = []
    for _ in range(turns // 2):
        there = rng.sample(sides, len(sides))
        sequence += there + there[::-1]
    return sequence


def _longest(case: TimedCase, reference: list[Block]) -> float:
    """Seconds of a block of the reference, or of a full one if no side were slow.

    Else a side slow in the checks could have blocks as short as the cost of a window.
    """
    return max(statistics.median(block.run for block in reference), case.unshortened_s)


def _require_positive(time_s: float, overhead: float, reference_s: float) -> None:
    if time_s > 0:
        return
    if overhead > _USABLE_SHARE * reference_s:
        raise CrowdedFault(
            "the host is too busy for a clock: a window without calls takes more than half as long "
            "as one with those of the reference"
        )
    raise TooShortFault(
        Status.TIMING_UNBOUNDED, "the calls took less time than the clock's own overhead"
    )


def judge_samples(
    rounds: Sequence[MeasurementRound], on_device: Callable[[], AbstractContextManager[None]]
) -> float | None:
    """Judge the outputs taken.

    Those of one call follow one another, whatever their rounds and sides: the expected outputs may
    be too large to be kept until the next is judged.

    Args:
        rounds: Whose samples are judged, and let go of.
        on_device: The device for a while, and nothing is timed meanwhile.

    Returns:
        The worst margin of the candidate's outputs; None if none was measured.

    Raises:
        CandidateFault: one of the candidate's is wrong.
        SideFault: one of another side's is.
    """
    samples = [sample for round_ in rounds for sample in round_.samples]
    for round_ in rounds:
        round_.samples.clear()
    outputs = [(side, case, block, at) for side, case, block in samples for at in block.samples]
    margin = None
    for _, of_call in itertools.groupby(sorted(outputs, key=_call_of), key=_call_of):
        check = None  # the last one is let go of before the next is made
        with on_device():
            for side, case, block, at in of_call:
                check = check or case.warm.block_check(block.number, at, case.calls)
                with blaming(side):
                    output = block.samples.pop(at)
                    found = _require_right(case, _judged_output(case, output, check))
                margin = worst(margin, found if side == CANDIDATE else None)
    return margin


def _call_of(output: tuple[str, TimedCase, Block, int]) -> tuple[int, int, int, int]:
    """Which call of the task's an output is of: side, case, block, and the call's place there."""
    _, case, block, at = output
    return case.warm.index, case.calls, block.number, at


def judged_outputs(case: TimedCase, block: Block) -> Iterator[Judgement]:
    """The verdict on each of the outputs taken from a block."""
    for at, sample in block.samples.items():
        check = case.warm.block_check(block.number, at, case.calls)
        yield _judged_output(case, sample, check)


def _judged_output(case: TimedCase, sample: list[torch.Tensor], check: Check) -> Judgement:
    output = [
        part.to(own.device) for part, own in zip(sample, check.expected.reference, strict=True)
    ]
    return judge(case.warm.case, output, check.expected.spec, check.expected, check.tree())


def _require_right(case: TimedCase, verdict: Judgement) -> float | None:
    """The margin of a right output.

    How a wrong one differs stays untold: a candidate could have it say which calls are judged.
    """
    if verdict.status is not Status.CORRECT:
        raise CandidateFault(
            verdict.status,
            f"case {case.warm.case.name}: an output of the timed run was wrong although those of "
            "the checks were right (is work left over when forward returns, or kept from call to "
            "call?)",
        )
    return verdict.margin


def _mismatches(case: str, blocks: list[Block], overhead: float) -> list[str]:
    """Blocks for which the time claimed inside of the process does not fit that taken outside."""
    found = []
    for block in blocks:
        outside = block.run - overhead
        if not 0.5 * outside - 1e-3 <= block.inside <= block.run + 1e-4:
            found.append(
                f"{case}: {block.inside * 1e3:.3g} ms claimed, {outside * 1e3:.3g} ms measured"
            )
    return found
