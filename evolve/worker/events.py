"""Times that a process takes of its own calls on a GPU: by CUDA events, and on its host.

Whoever runs the calls holds this clock. Of a candidate they are diagnostics, which rank nothing; of
the reference, whose process is ours, they are what other evaluators publish: `kernelbench_ms` is
taken as KernelBench does (Ouyang et al., 2025; `time_execution_with_cuda_event` of its timing.py:
three calls first, the cache overwritten before each trial, the mean of the trials).
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from evolve.worker.clock import PairTimes
from evolve.worker.device import Device
from evolve.worker.faults import CANDIDATE, EAGER, CandidateFault
from evolve.worker.process import RunnerProcess
from evolve.worker.window import TimedCase

KERNELBENCH_TRIALS = 100
_WARM_CALLS = 3
_FLUSH_SHAPE = (32, 1024, 1024)  # of 64-bit integers: 256 MiB
_FLUSH_CYCLES = 250_000  # some 0.13 ms on an H200
_TOLD_S = 0.02  # of calls in each way, and
_TOLD_TRIALS = (3, 20)  # so many
_PATIENCE_S = 10.0
_NAMES = ("kernelbench_ms", "cold_ms", "warm_ms", "end_to_end_ms")


def observe(call: Callable[[], object], trials: int) -> str:
    """JSON of `read`'s times, each over so many trials after one that does not count."""
    for _ in range(_WARM_CALLS):
        call()
        torch.cuda.synchronize()
    cold = [_between_events(call, is_cold=True) for _ in range(trials + 1)][1:]
    warm = [_between_events(call, is_cold=False) for _ in range(trials + 1)][1:]
    host = [_on_host(call) for _ in range(trials + 1)][1:]
    times = (statistics.fmean(cold), *map(statistics.median, (cold, warm, host)))
    return json.dumps(dict(zip(_NAMES, times, strict=True)))


def _between_events(call: Callable[[], object], is_cold: bool) -> float:
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if is_cold:
        _flush()
    else:  # as long, so that the host is ahead here too: else its launches would be in the time
        torch.cuda._sleep(_FLUSH_CYCLES)
    start.record()
    output = call()
    end.record()
    torch.cuda.synchronize()
    del output
    return float(start.elapsed_time(end))


def _on_host(call: Callable[[], object]) -> float:
    _flush()
    torch.cuda.synchronize()
    start = time.perf_counter()
    output = call()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    del output
    return 1e3 * seconds


def _flush() -> None:
    torch.empty(_FLUSH_SHAPE, dtype=torch.int64, device="cuda").fill_(42)


# --- the referee's side -------------------------------------------------------------------------


def told(
    device: Device, processes: Mapping[str, RunnerProcess], cases: list[TimedCase], pair: PairTimes
) -> dict[str, dict[str, dict[str, float]]]:
    """What candidate and eager say of their calls at the end of a sitting, by case and side."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for case in cases:
        name = case.warm.case.name
        for side in (CANDIDATE, EAGER):
            fewest, most = _TOLD_TRIALS
            trials = int(_TOLD_S / statistics.median(pair.blocks[name][side]))
            trials = max(fewest, min(trials, most))
            with device.share(processes[side], case.warm.block(-1, 1)) as inputs:
                try:
                    text = processes[side].events(case.warm.index, inputs, trials, _PATIENCE_S)
                except CandidateFault:  # its times are taken; this is for whoever wants to know
                    continue
            found.setdefault(name, {})[side] = read(text)
    return found


def read(text: str) -> dict[str, float]:
    """What a process says of itself; nothing where it does not read as that.

    Milliseconds of a call: `cold_ms` and `warm_ms` (median between events, with the second-level
    cache overwritten before or not), `end_to_end_ms` (median on the host's clock, from a cold cache
    to the last kernel's end), `kernelbench_ms` (see the module).
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or not all(_is_time(found.get(name)) for name in _NAMES):
        return {}
    return {name: float(found[name]) for name in _NAMES}


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < math.inf
