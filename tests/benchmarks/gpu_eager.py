"""Eager's times by CUDA events as the judge takes them, beside those of KernelBench's own code.

    python -m tests.benchmarks.bench_gpu eager

The 20 problems of the comparison with KernelBench's evaluator, or others. Of each the judge times
the reference (`timing=kernelbench`), then KernelBench's `measure_ref_program_time`, on one machine
in one run. Published numbers are such times.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Sequence

from evolve.core.task import Task
from tests.benchmarks.gpu_kernelbench import TIMINGS, evaluator_process
from tests.worker.serving import Worker

NEAR = 0.02
_PATIENCE_S = 60.0


def eager_times(worker: Worker, tasks: Sequence[Task], options: argparse.Namespace) -> None:
    """Print a line for each task and how many are near; none is begun after `options.seconds`."""
    until = time.monotonic() + options.seconds
    apart: list[float] = []
    with evaluator_process(options.log, options.seconds + _PATIENCE_S) as (process, _):
        for task in tasks:
            if time.monotonic() > until:
                print(f"{task.name}: no time left")
                continue
            ours, theirs = _by_judge(worker, task), _by_kernelbench(process, task)
            if not ours or not theirs:
                print(f"{task.name}: {ours} and {theirs} ms; see {options.log}", flush=True)
                continue
            apart.append(ours / theirs - 1)
            print(f"{task.name}: {ours:.4g} ms, KernelBench {theirs:.4g} ({apart[-1]:+.1%})",
                  flush=True)  # fmt: skip
    near = sum(abs(one) <= NEAR for one in apart)
    print(f"eager's times within {NEAR:.0%} of KernelBench's: {near} of {len(apart)}")


def _by_judge(worker: Worker, task: Task) -> float | None:
    """Milliseconds; None where there is no answer, whose reason is printed."""
    reply = worker.send("events", task=task.to_json()).result(_PATIENCE_S)
    if "result" not in reply:
        print(f"{task.name}: {reply['error']['message'][:200]}")
        return None
    (times,) = reply["result"].values()
    return float(times["kernelbench_ms"])


def _by_kernelbench(process: "subprocess.Popen[str]", task: Task) -> float | None:
    """Milliseconds; None where it gives no time."""
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps({"reference": task.source, "timings": TIMINGS}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline() or "{}")
    return answer.get("eager_ms")
