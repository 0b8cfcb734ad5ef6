"""Times that a process takes of its own calls on a GPU: by CUDA events, and on its host.

The process that runs the calls holds this clock. Of a candidate they are diagnostics, which rank
nothing; of the reference, whose process is trusted, they are the times that other evaluators
publish: `kernelbench_ms` is taken as KernelBench does (Ouyang et al., 2025;
`time_execution_with_cuda_event` of its timing.py: three calls first, the cache overwritten before
each trial, the mean of the trials).
"""

import json
import math
import statistics
from collections.abc import Mapping
from functools import partial

from evolve.worker.base.faults import CANDIDATE, EAGER, CandidateFault
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import TimedCase
from evolve.worker.processes.runner_process import Needs, RunnerProcess
from evolve.worker.runner.cuda_events import NAMES
from evolve.worker.session.candidate_session import CandidateSession
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.prepared_task import PreparedTask
from evolve.worker.timing.interleaved_blocks import PairTimes

KERNELBENCH_TRIALS = 100
_FLUSHED = 512 << 20  # more than KernelBench's timing overwrites between calls
_SELF_REPORTED_S = 0.02  # of calls in each way, and
_SELF_REPORTED_TRIALS = (3, 20)  # so many
_PATIENCE_S = 10.0


def self_reported(
    device: Device, processes: Mapping[str, RunnerProcess], cases: list[TimedCase], pair: PairTimes
) -> dict[str, dict[str, dict[str, float]]]:
    """Self-reported times of candidate and eager at the end of a round, by case and side."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for case in cases:
        name = case.warm.case.name
        for side in (CANDIDATE, EAGER):
            fewest, most = _SELF_REPORTED_TRIALS
            trials = int(_SELF_REPORTED_S / statistics.median(pair.blocks[name][side]))
            trials = max(fewest, min(trials, most))
            with device.share(processes[side], case.warm.block(-1, 1)) as inputs:
                try:
                    text = processes[side].events(case.warm.index, inputs, trials, _PATIENCE_S)
                except CandidateFault:  # its times are taken; these are diagnostics
                    continue
            found.setdefault(name, {})[side] = read(text)
    return found


def of_reference(
    session: CandidateSession, device_lock: DeviceLock, task: PreparedTask
) -> dict[str, dict[str, float]]:
    """Of the reference in a process of its own that has the device alone, by timed case."""
    found, call_s = {}, session.call_s
    start = partial(session.reference, task, Needs(_FLUSHED, all_queues=True))
    with device_lock.only(start) as runner:
        for case in task.timed:
            with session.device.share(runner, case.block(-1, 1)) as inputs:
                text = runner.events(case.index, inputs, KERNELBENCH_TRIALS, call_s)
            found[case.case.name] = read(text)
    return found


def read(text: str) -> dict[str, float]:
    """A process's report on itself; nothing if it is malformed.

    Milliseconds of a call: `cold_ms` and `warm_ms` (median between events, with the second-level
    cache overwritten before or not), `end_to_end_ms` (median on the host's clock, from a cold cache
    to the last kernel's end), `kernelbench_ms` (see the module).
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or not all(_is_time(found.get(name)) for name in NAMES):
        return {}
    return {name: float(found[name]) for name in NAMES}


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < math.inf
