"""An evaluation's use of the device's memory: its processes, their inputs, and the judge."""

import sys
from collections.abc import Sequence

from evolve.worker.devices.base import Device
from evolve.worker.session.plan import LONG_BLOCKS, Plan
from evolve.worker.session.prepared_task import PreparedCase, PreparedTask, usual_number

_OUTCOMES = 2  # are alive at once
_WORKING_SETS = 4  # of outputs: with temporaries
_COPIED_SETS = 2  # of inputs, as parts or in another layout; more if no peak is known
_TENSORS_MORE = 2  # the largest; pooling works out unused indices, of twice the size
_PEAKS = 2  # of the reference's live memory: workspaces, and other algorithms
# In the judge: inputs, the outcome, values compared with it, the fp64 truth (four if outputs are in
# half precision), and temporaries.
_JUDGING_SETS = 8
_EXPECTING_SETS = 6  # more during the computation: moved operands, parts of convolutions
_PEAKS_EXPECTING = 2  # in fp64
_COPIES_OF_WEIGHTS = 2  # in float32 or more, while a model is made
_PACKED_WEIGHTS = 2  # more of a candidate: as parts for tensor cores, and while they are made
_MAX_SHARE = 4  # of a device: for the tensors of a program, where fewer will do
_TRUSTED_SHARE = 6  # the same for the reference and a baseline
_ALWAYS_THERE = 2  # in a round: the candidate, and the reference
_SHARE_TO_SIT = 2 / 3  # of the room: others check meanwhile
_CORES_OF_WRITER = 4  # of several tasks at once, whose processes wait for the driver to open a GPU
LAUNCH_BOUND_S = 100e-6  # a reference that takes longer is not launch-bound, and is not recorded


def working_bytes(cases: Sequence[PreparedCase], device: Device) -> int:
    """Memory for the tensors of a process with the models of these cases, without inputs."""
    for case in cases:
        case.measure()
    return _working_bytes(cases, device)


def trusted_bytes(cases: Sequence[PreparedCase], device: Device) -> int:
    """The same for the reference and for baselines: how much they have alive at once is known.

    Twice that, if it is little: workspaces, and a compiled form may go another way. Of
    gigabytes, two tensors more, up to a share of the device: three sides have to fit beside each
    other. One that runs out of it gets more (`require_more`).
    """
    if not all(case.peak_bytes for case in cases):
        return working_bytes(cases, device)
    outputs = max(case.output_bytes for case in cases)
    generous = max(_WORKING_SETS * outputs, _PEAKS * _peak(cases))
    more = _TENSORS_MORE * max(case.known_bytes for case in cases) + device.pool_bytes
    most = device.total_bytes // _TRUSTED_SHARE or sys.maxsize
    large = max(min(_peak(cases) + more, most), _peak(cases) + device.pool_bytes)
    return max(min(generous, large) + weights_bytes(cases), _least(cases))


def _working_bytes(cases: Sequence[PreparedCase], device: Device) -> int:
    """The same as far as is known; no less than trusted sides were found to need."""
    return max(_usual_bytes(cases, device), _least(cases))


def _usual_bytes(cases: Sequence[PreparedCase], device: Device) -> int:
    """Of tasks so large that two sides would not fit, the minimum for one call."""
    most = device.total_bytes // _MAX_SHARE or sys.maxsize
    sets = max(max(min(_sets_bytes(case), most), _call_bytes(case)) for case in cases)
    return sets + weights_bytes(cases) + _PACKED_WEIGHTS * _made(cases)


def _least(cases: Sequence[PreparedCase]) -> int:
    return max(case.least_bytes for case in cases)


def _sets_bytes(case: PreparedCase) -> int:
    copied = _COPIED_SETS if case.peak_bytes else _WORKING_SETS
    outputs = case.output_bytes if case.is_measured else 0
    return max(
        _WORKING_SETS * outputs,
        copied * case.input_bytes + _OUTCOMES * outputs,
        case.input_bytes + _PEAKS * case.peak_bytes,  # a custom layout, and the rest
    )


def _call_bytes(case: PreparedCase) -> int:
    """Two outcomes, or the reference's live memory, and a copy of the inputs."""
    outputs = case.output_bytes if case.is_measured else 0
    return case.input_bytes + max(_OUTCOMES * outputs, case.peak_bytes)


def require_more(cases: Sequence[PreparedCase], device: Device) -> bool:
    """Twice as much from now on for the reference and baselines: one ran out of memory.

    Not known before: the workspace of a vendor's library, and the losses between the blocks
    that torch keeps. No more than a quarter of the room, or than candidates usually have, or there
    would be none for the other sides. A device without a room has no such limit.

    Returns:
        Whether it is more than before.
    """
    has = max(device.pool_bytes, trusted_bytes(cases, device))
    most = max(device.room // 4, _usual_bytes(cases, device)) if device.room else 2 * has
    if most <= has:
        return False
    for case in cases:
        case.least_bytes = min(2 * has, most)
    return True


def _peak(cases: Sequence[PreparedCase]) -> int:
    return max(case.peak_bytes for case in cases)


def weights_bytes(cases: Sequence[PreparedCase]) -> int:
    """Bytes of the models of these cases while they are made."""
    return _COPIES_OF_WEIGHTS * _made(cases)


def _made(cases: Sequence[PreparedCase]) -> int:
    return sum(case.made_bytes for case in cases)


def compiling_bytes(cases: Sequence[PreparedCase], device: Device) -> int:
    """Memory for the tensors of a process that has the models and no inputs."""
    return device.pool_bytes + weights_bytes(cases)


def room_to_compile(cases: Sequence[PreparedCase], device: Device) -> int:
    """Bytes of the device that such a process takes."""
    return compiling_bytes(cases, device) + device.process_bytes


def writers(cases: Sequence[PreparedCase], device: Device, variants: int) -> int:
    """How many processes share the compiler's requests: as cores and memory allow."""
    fitting = device.room // room_to_compile(cases, device) if device.room else variants
    return max(1, min(variants, fitting, device.cores // _CORES_OF_WRITER))


def room_for(
    cases: Sequence[PreparedCase],
    device: Device,
    processes: int,
    block: int = 0,
    outputs: int = 0,
    judges: bool = True,
) -> int:
    """Bytes of the device that an evaluation takes: its processes, their inputs, and the judge.

    Args:
        cases: Of the task, with the facts known so far.
        device: That it runs on.
        processes: At once.
        block: Bytes of a block that they are timed on (`largest_block`); 0 if they are not.
        outputs: Of each for such a block (`block_outputs`).
        judges: Whether it may have to compute the expected outputs.
    """
    largest = max(case.known_bytes for case in cases)
    tensors = max(device.pool_bytes, _working_bytes(cases, device) + outputs)
    sent = max(block, sum(case.input_bytes for case in cases))
    ours = _judging_bytes(cases, device, largest) if judges else 0
    return processes * (tensors + sent + device.process_bytes) + ours


def room_to_check(task: PreparedTask, device: Device, processes: int = 1) -> int:
    """Bytes of the device that an evaluation takes before it is timed, with so many processes.

    Also for the one process that a new task is measured with, on long blocks.
    """
    room = room_for(task.cases, device, processes)
    if task.layouts:
        return room
    block = largest_block(task, device, LONG_BLOCKS)
    outputs = block_outputs(task, device, LONG_BLOCKS)
    return max(room, room_for(task.cases, device, 1, block, outputs))


def is_too_large(task: PreparedTask, device: Device) -> bool:
    """Whether a device has less memory than it should take to check one candidate on it.

    Some of these may fit all the same: how much a candidate needs is a guess. If one was judged
    to the end, the task does: or a later one that takes all memory could end a search.
    """
    return not task.has_fitted and 0 < device.total_bytes < room_for(task.cases, device, 1)


def _judging_bytes(cases: Sequence[PreparedCase], device: Device, largest: int) -> int:
    """Serial computations have memory of their own, and take more only if they must."""
    expecting = _EXPECTING_SETS * largest + _PEAKS_EXPECTING * _peak(cases)
    return _JUDGING_SETS * largest + max(0, expecting - device.expecting_bytes)


def largest_block(task: PreparedTask, device: Device, plan: Plan) -> int:
    """Bytes that the inputs of a timed block take at most, or its outputs."""
    return max(_block_bytes(task, case, device, plan) for case in task.timed)


def _block_bytes(task: PreparedTask, case: PreparedCase, device: Device, plan: Plan) -> int:
    """The same of one case; for as many calls as its blocks have, if that is known."""
    affordable = device.reward_bytes if plan.is_brief else device.block_bytes
    size = case.known_bytes
    calls = block_calls(task, case, device, plan) or device.calls[1]
    return min(max(affordable, size), calls * size)


def block_calls(task: PreparedTask, case: PreparedCase, device: Device, plan: Plan) -> int:
    """Calls of the reference that a timed block may have; 0 as long as none was measured."""
    calls = task.calls.get(case.index, 0)
    if not calls or not plan.is_brief:
        return calls
    most = case.most_calls(case.output_bytes, device.reward_bytes, device.reward_bytes)
    return min(calls, usual_number(most))


def block_outputs(task: PreparedTask, device: Device, plan: Plan) -> int:
    """A process's memory for the outputs of timed blocks, those of one call not counted.

    Half as much again as they have: torch takes 20 MiB at a time for tensors of 1 to 10 MiB, so of
    8 MiB two in each, and rounds larger ones up. Memory of one case stays allocated if the next
    needs other sizes, and a recording keeps its inputs and outputs beside those of plain calls.
    """
    total = 0
    for case in task.timed:
        block = _block_bytes(task, case, device, plan)
        calls = block_calls(task, case, device, plan)
        total += block - case.known_bytes
        if calls and may_record(case, device, task.reference_s[case.index], calls):
            total += 2 * block
    return min(3 * total // 2, most_outputs(device))


def most_outputs(device: Device) -> int:
    """The most that `block_outputs` gives for any task."""
    return 3 * device.block_bytes // 2


def may_record(case: PreparedCase, device: Device, reference_s: float, calls: int) -> bool:
    """Whether a case is worth recording, and memory allows it: a graph keeps its memory."""
    kept = calls * (case.input_bytes + case.output_bytes)
    return device.has_profiler and reference_s < LAUNCH_BOUND_S and 2 * kept < device.block_bytes


def keeps_outputs(task: PreparedTask, device: Device, sides: int, outputs: int, plan: Plan) -> bool:
    """Whether a device has memory for so many outputs beside the processes of all sides."""
    block, own = largest_block(task, device, plan), block_outputs(task, device, plan)
    processes = room_for(task.cases, device, sides, block, own, judges=False)
    kept = 2 * block + outputs * max(case.output_bytes for case in task.timed)
    return not device.total_bytes or processes + kept <= device.total_bytes


def opponents_at_once(task: PreparedTask, device: Device, opponents: int, plan: Plan) -> int:
    """How many opponents sit beside candidate and reference: as many as there is room for.

    One at least, or it would never be timed. Outcomes are judged when the processes have ended.
    """
    block = largest_block(task, device, plan)
    outputs = block_outputs(task, device, plan)
    for count in range(opponents, 1, -1):
        sides = _ALWAYS_THERE + count
        room = room_for(task.cases, device, sides, block, outputs, judges=False)
        if not device.room or room <= device.room:
            return count
    return 1


def rounds_at_once(task: PreparedTask, device: Device, sides: int, plan: Plan) -> int:
    """How many of an evaluation's rounds are made ready together.

    One, unless there will be many: then as many as the device wants, or fewer if their processes
    would take so much of its memory that no check could run beside them.
    """
    if not plan.is_final:
        return 1
    for rounds in range(device.rounds, 1, -1):
        room = _memory_for_rounds(task, device, rounds * sides, plan)
        if not device.room or room <= _SHARE_TO_SIT * device.room:
            return rounds
    return 1


def room_to_time(task: PreparedTask, device: Device, sides: int, plan: Plan) -> int:
    """Bytes of the device that the rounds take that are made ready together."""
    rounds = rounds_at_once(task, device, sides, plan)
    return _memory_for_rounds(task, device, rounds * sides, plan)


def _memory_for_rounds(task: PreparedTask, device: Device, processes: int, plan: Plan) -> int:
    block = largest_block(task, device, plan)
    outputs = block_outputs(task, device, plan)
    return room_for(task.cases, device, processes, block, outputs)
