"""How the cases of a comparison are timed: calls and blocks, and the results of a round."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evolve.core.evaluation import Status
from evolve.core.measurement import middle
from evolve.worker.base.faults import CANDIDATE, EAGER, CandidateFault
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import SLOWEST_S, Layout, TimedCase, size_in_bytes
from evolve.worker.session.candidate_session import Candidate
from evolve.worker.session.memory_model import (
    LAUNCH_BOUND_S,
    block_calls,
    keeps_outputs,
    may_record,
)
from evolve.worker.session.plan import Plan
from evolve.worker.session.prepared_task import PreparedCase, PreparedTask, usual_number
from evolve.worker.timing.graph_timing import Measured
from evolve.worker.timing.interleaved_blocks import PairTimes, most_taken, variation
from evolve.worker.timing.statistics import CLOSE

_LONG_SHARE = 2 / 3  # of the length that a block is to have: few of those that long will do
_UNSTEADY = 0.05  # of a block's time
_MAX_BLOCK_S = 0.5  # where a side is much slower than the reference
_PATIENCE = 4.0  # times as long as a block is expected to take
_LENGTHENED_S = (
    5.0  # at most, of calls seen to be quick: one that is not always would hold up the judge
)
_STEP = 16  # that calls of blocks grow by, if no more is known than that they are too few
_HOPELESS_S, _HOPELESS_FACTOR = 3.0, 50.0
_LARGE_SHARE = 4  # of the memory for warm tasks of a device: larger outputs wait on the host


def planned(
    task: PreparedTask,
    sides: Mapping[str, Candidate | None],
    own: Mapping[str, Layout],
    device: Device,
    plan: Plan,
) -> list[TimedCase]:
    """Calls per block, and where each side's outputs lie relative to their address.

    Makes the blocks too, now and not while this thread has the device alone.

    Args:
        task: Its timed cases are planned.
        sides: By name; None stands for the reference.
        own: The layouts of the reference's outputs, by case.
        device: That they are timed on.
        plan: Of the evaluation.

    Raises:
        CandidateFault: the candidate is too slow to be timed.
    """
    cases = []
    for case in task.timed:
        name = case.case.name
        layouts = {side: who.layouts[name] if who else own[name] for side, who in sides.items()}
        cases.append(_planned(task, case, sides, layouts, device, plan))
        case.prepare_blocks(cases[-1].calls)
    return cases


def _planned(
    task: PreparedTask,
    case: PreparedCase,
    sides: Mapping[str, Candidate | None],
    layouts: Mapping[str, Layout],
    device: Device,
    plan: Plan,
) -> TimedCase:
    name, reference_s, candidate = case.case.name, task.reference_s[case.index], sides[CANDIDATE]
    _require_worth(candidate, name, reference_s)
    seconds = {side: who.seconds[name] if who else reference_s for side, who in sides.items()}
    wanted = block_calls(task, case, device, plan)
    others = [seconds[side] for side, who in sides.items() if who]
    calls = _affordable(wanted, max(others, default=1e-6))
    by_graph = task.loaded.timing == "graph"
    is_wanted = by_graph or (candidate is not None and plan.records)
    is_long = reference_s * wanted >= _LONG_SHARE * device.block_s
    one_by_one = device.gives_calls and reference_s < LAUNCH_BOUND_S
    return TimedCase(
        warm=case,
        calls=calls,
        layouts=layouts,
        blocks=device.few_blocks if is_long else device.blocks,
        recorded=is_wanted and may_record(case, device, reference_s, wanted),
        wanted=wanted,
        unshortened_s=reference_s * wanted,
        stack_samples=0
        if one_by_one or not (candidate and candidate.custom)
        else device.stack_samples,
        one_by_one=one_by_one,
        limit_s=_limit_s(calls * max(seconds.values())),
        on_host=_waits_on_host(task, layouts, device, plan),
    )


def _limit_s(expected_s: float) -> float:
    """Seconds that a block may take: all others wait for the device meanwhile."""
    return min(SLOWEST_S, max(_LENGTHENED_S, _PATIENCE * expected_s))


def _waits_on_host(
    task: PreparedTask, layouts: Mapping[str, Layout], device: Device, plan: Plan
) -> bool:
    """Whether outputs are so large that beside the sides' memory there may be none for them."""
    largest = max(sum(map(size_in_bytes, layout)) for layout in layouts.values())
    if largest <= device.warm_bytes // _LARGE_SHARE:
        return False
    return not keeps_outputs(task, device, len(layouts), most_taken(layouts), plan)


def lengthened(
    cases: Sequence[TimedCase], pairs: Sequence[Measured], is_short: bool
) -> list[TimedCase]:
    """The cases, with longer blocks if a side was slow in the checks and is not when timed.

    A first call may be; of blocks that short, the window's overhead and a process's latency would
    decide. Makes the blocks.

    Args:
        cases: As they were timed.
        pairs: Of the rounds so far.
        is_short: Whether somebody's blocks were too short for a time.
    """
    return [_lengthened(case, pairs, is_short) for case in cases]


def _lengthened(case: TimedCase, pairs: Sequence[Measured], is_short: bool) -> TimedCase:
    calls = case.calls
    if is_short:
        calls = min(case.wanted, _STEP * calls)
    elif pairs:
        sides = pairs[-1].pair.blocks[case.warm.case.name]
        calls = _affordable(case.wanted, max(map(middle, sides.values())))
    if calls < 2 * case.calls:
        return case
    case.warm.prepare_blocks(calls)
    return replace(case, calls=calls, limit_s=_LENGTHENED_S)


def with_blocks(
    cases: Sequence[TimedCase], pair: PairTimes, device: Device, plan: Plan
) -> list[TimedCase]:
    """The cases, with all blocks that there are if a round was unsteady and its sides close.

    On a noisy virtual machine the ratio of a round varies by 9 % with 8 blocks and by 4 % with
    24, for twice the time.
    """
    return [_with_blocks(case, pair, device, plan) for case in cases]


def _with_blocks(case: TimedCase, pair: PairTimes, device: Device, plan: Plan) -> TimedCase:
    if case.recorded or plan.is_brief:
        return case
    name = case.warm.case.name
    sides = pair.blocks[name]
    is_close = any(abs(pair.log_ratio(name, side)) < CLOSE for side in sides.keys() - {CANDIDATE})
    if is_close and variation(sides[EAGER]) > _UNSTEADY:
        return replace(case, blocks=_even(device.block_pool, device))
    return case


def _even(blocks: int, device: Device) -> int:
    """The largest number up to that which gives each side an even number of turns."""
    return blocks // (2 * device.turn_blocks) * 2 * device.turn_blocks


def _affordable(wanted: int, slowest_s: float) -> int:
    """Calls in a block, so many that the slowest side's is not too long."""
    return min(wanted, usual_number(max(1, int(_MAX_BLOCK_S / slowest_s))))


def _require_worth(candidate: Candidate | None, case: str, reference_s: float) -> None:
    """A candidate that takes seconds beside a fast reference would delay all others."""
    seconds = candidate.seconds[case] if candidate else 0.0
    if seconds > _HOPELESS_S and seconds > _HOPELESS_FACTOR * reference_s:
        raise CandidateFault(
            Status.TIMEOUT,
            f"case {case}: correct, but one call takes {seconds:.1f} s, "
            f"{seconds / reference_s:.0f} times as long as the reference's; it was not timed",
        )
