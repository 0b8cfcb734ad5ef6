"""Which tasks of a suite load here, and whether the reference of their first case runs.

    python tests/benchmarks/suite_references.py SUITE CHECKOUT [EVERY] [SECONDS] >> FILE.jsonl

One process for each task, ended after SECONDS (default 60) or at 8 GiB of memory; of many tasks
only every EVERYth. A line of JSON for each, then counts on standard error. Nothing is timed and no
candidate takes part; `evolve tasks check` judges null candidates as well.
"""

import json
import multiprocessing
import resource
import sys
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from evolve.app.bench.suite_check import NO_GPU
from evolve.core.errors import UsageError
from evolve.tasks import find_task
from evolve.tasks.suites import suite_problems

MOST_BYTES = 8 << 30


def tried(spec: str, checkout: str, answer: Connection) -> None:
    """Send the state of one task, with the reason if it does not run."""
    try:
        task = find_task(spec, size="tiny", checkout=Path(checkout))
    except UsageError as error:
        answer.send(("unreadable", str(error)))
        return
    import torch

    from evolve.worker.correctness.cases import load_task

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    try:
        case = load_task(task).cases[0]
        case.reference(case.model(1), case.inputs(1))
    except (UsageError, RuntimeError, MemoryError) as error:
        said = str(error)
        lacks = any(sign in said for sign in NO_GPU)
        short = isinstance(error, MemoryError) or "t allocate memory" in said
        state = "needs a GPU" if lacks else "too large here" if short else "fails"
        answer.send((state, said))
        return
    answer.send(("runs", ""))


def state_of(spec: str, checkout: str, seconds: float) -> tuple[str, str]:
    """The state of one task, from a process of its own."""
    own, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=tried, args=(spec, checkout, theirs))
    process.start()
    theirs.close()
    found = ("too large here", f"no answer in {seconds:g} s")
    if own.poll(seconds):
        try:
            found = own.recv()
        except EOFError:
            found = ("too large here", "the process was killed")
    process.kill()
    process.join()
    return found


def main(suite: str, checkout: str, every: str = "1", seconds: str = "60") -> None:
    problems = suite_problems(suite, path=checkout, levels=sys.argv[5:])
    counts: Counter[str] = Counter()
    for problem in problems[int(every) // 2 :: int(every)]:
        state, why = state_of(problem.spec, checkout, float(seconds))
        counts[state] += 1
        print(json.dumps({"task": problem.spec, "state": state, "why": why[:300]}), flush=True)
    print(suite, len(problems), dict(counts), file=sys.stderr)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main(*sys.argv[1:5])
