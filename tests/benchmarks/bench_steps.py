"""Processor time of an evaluation's steps on the CPU, which changes little with the host's load.

    OMP_WAIT_POLICY=passive python -m tests.benchmarks.bench_steps --task rmsnorm
    OMP_WAIT_POLICY=passive python -m tests.benchmarks.bench_steps --usual-heap

Of the judge's own process, which has that variable and the heap of `evolve.worker.base.heap`.
`outcome` is one call of a candidate, from its inputs to the verdict.
"""

import argparse
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from evolve.tasks import find_task
from evolve.worker.base import heap
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.judge.judge import Judge
from evolve.worker.session.candidate_session import Candidate
from tests.benchmarks.conditions import print_conditions

REPEATS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="rmsnorm")
    parser.add_argument("--usual-heap", action="store_true")
    options = parser.parse_args()
    if not options.usual_heap:
        heap.keep_freed_memory()
    print_conditions()
    with tempfile.TemporaryDirectory() as cache, torch.no_grad():
        judge = Judge(CpuDevice(), Path(cache))
        try:
            steps(judge, options.task)
        finally:
            judge.close()


def steps(judge: Judge, name: str) -> None:
    """Each step some times over, by the same thread."""
    task = find_task(name, size="cpu")
    warm = judge.warm(task)
    case, session, candidate = warm.timed[0], judge.session, Candidate(task.seeds[0])
    session.compile(candidate, warm)
    hidden = case.check("task", 0)
    tell("inputs", lambda: case.case.inputs(1))
    tell("block of 4 calls", lambda: case._make_block(0, 4))
    tell("expected", lambda: case.case.expected(case._model, hidden.tree()))
    with session.loaded(candidate, [case]) as runner:
        tell("outcome", lambda: session.outcome(runner, case, hidden))


def tell(what: str, step: Callable[[], object]) -> None:
    """Milliseconds of processor time of a step, in the program and in the kernel."""
    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(REPEATS):
        step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    own, kernel = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    print(f"{what}: {1e3 * own / REPEATS:.1f} ms, {1e3 * kernel / REPEATS:.1f} ms in the kernel")


if __name__ == "__main__":
    main()
