"""What one isolated candidate costs, and whether the clock is honest about a tie.

    python -m tests.benchmarks.bench_judge --task softmax --runs 200 --fidelity verify

Isolation: a fresh confined process loads a candidate that is built already, takes its inputs, runs
once and hands its output over. A/A: the reference timed against itself, each time in fresh process
pairs; the interval should exclude 1.0 in at most 5 % of all runs.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from evolve.core.errors import EvolveError
from evolve.core.evaluation import Fidelity
from evolve.tasks import find_task
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.judge.judge import Judge
from evolve.worker.session.candidate_session import Candidate
from tests.benchmarks.conditions import print_conditions

CANDIDATES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="softmax")
    parser.add_argument("--runs", type=int, default=20, help="of the A/A test; 200 for the figure")
    levels = (Fidelity.SEARCH, Fidelity.VERIFY)
    parser.add_argument("--fidelity", type=Fidelity, choices=levels, default=Fidelity.SEARCH)
    options = parser.parse_args()
    print_conditions()
    with tempfile.TemporaryDirectory() as cache:
        judge = Judge(CpuDevice(), Path(cache))
        try:
            isolation(judge, options.task)
            against_itself(judge, options.task, options.runs, options.fidelity)
        finally:
            judge.close()


def isolation(judge: Judge, name: str) -> None:
    """Seconds from the request for a process to its output in custody, tiny and cpu size."""
    for size in ("tiny", "cpu"):
        task = find_task(name, size=size)
        warm = judge.warm(task)
        case = warm.timed[0]
        session = judge.session
        candidate = Candidate(task.seeds[0])
        session.compile(candidate, warm)
        case.check("task", 0)  # what is expected is computed once, and not for a candidate
        seconds = []
        for _ in range(CANDIDATES):
            start = time.perf_counter()
            with session.loaded(candidate, [case]) as runner:
                session.outcome(runner, case, case.check("task", 0))
            seconds.append(time.perf_counter() - start)
        print(
            f"isolated candidate, {name} at size {size} ({case.input_bytes / 1e6:.1f} MB of "
            f"inputs): median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s "
            f"of {CANDIDATES}, sandbox {judge.launcher.tier}"
        )


def against_itself(judge: Judge, name: str, runs: int, fidelity: Fidelity) -> None:
    """How often the interval of eager against eager excludes 1.0, and how wide it is."""
    task = find_task(name, size="cpu")
    excluded, widths, seconds = 0, [], []
    for number in range(1, runs + 1):
        start = time.monotonic()
        try:
            found = judge.noise(task, fidelity)
        except EvolveError as error:
            print(f"run {number}: {error}")
            continue
        seconds.append(time.monotonic() - start)
        ratio, low, high = found["ratio"]
        excluded += not low <= 1.0 <= high
        widths.append(found["half_width"])
        print(f"run {number}: {ratio:.3f} [{low:.3f}, {high:.3f}], {seconds[-1]:.1f} s", flush=True)
    narrow = sum(width <= 0.03 for width in widths)
    print(
        f"A/A of {name}, {fidelity}: {excluded} of {len(widths)} intervals exclude 1.0; "
        f"half-width median {100 * statistics.median(widths):.1f} %, {narrow} within 3 %; "
        f"{statistics.median(seconds):.1f} s each"
    )


if __name__ == "__main__":
    main()
