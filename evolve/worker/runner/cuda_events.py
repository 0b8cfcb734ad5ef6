"""Times that a process takes of its own calls on a GPU, by CUDA events and on its host.

`evolve.worker.timing.cuda_events` describes them.
"""

import json
import statistics
import time
from collections.abc import Callable

import torch

NAMES = ("kernelbench_ms", "cold_ms", "warm_ms", "end_to_end_ms")
_WARM_CALLS = 3
_FLUSH_SHAPE = (32, 1024, 1024)  # of 64-bit integers: 256 MiB
_FLUSH_CYCLES = 250_000  # some 0.13 ms on an H200


def observe(call: Callable[[], object], trials: int) -> str:
    """JSON of times by `NAMES`, each over so many trials after one that does not count."""
    for _ in range(_WARM_CALLS):
        call()
        torch.cuda.synchronize()
    cold = [_between_events(call, is_cold=True) for _ in range(trials + 1)][1:]
    warm = [_between_events(call, is_cold=False) for _ in range(trials + 1)][1:]
    host = [_on_host(call) for _ in range(trials + 1)][1:]
    times = (statistics.fmean(cold), *map(statistics.median, (cold, warm, host)))
    return json.dumps(dict(zip(NAMES, times, strict=True)))


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
