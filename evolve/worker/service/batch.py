"""`python -m evolve.worker batch IN OUT`: a file of requests, judged where the device is.

For a GPU that the search cannot reach. A request that has an answer is not judged again, so that
the same command goes on after any end. The judging is done by a `serve` process for each device,
which is started again when it dies; this process holds the files, the order and the clock. Requests
under which a judge died are tried again one at a time when all others are done: a candidate that
ends the judge takes no neighbour with it.
"""

import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.worker.service.batch_files import read_answers, read_requests
from evolve.worker.service.batch_loop import DEADLINES, RESERVE_S, Batch
from evolve.worker.service.dispatch.place import Place
from evolve.worker.service.dispatch.process import WorkerProcess
from evolve.worker.service.shards import Shards

ANSWERED, UNAVAILABLE, USAGE, RESUMABLE = 0, 1, 2, 75


def judge_batch(
    requests: Path,
    answers: Path,
    *,
    deadline_s: float | None = None,
    slots: int | None = None,
    judges: Sequence[Sequence[str]] = ((),),
) -> int:
    """Judge the file (or folder) `requests` into the folder `answers`; progress on stderr.

    Args:
        requests: the file of `evolve batch`; see `evolve.worker.service.batch_files`.
        answers: a folder of shards, which `evolve tell` reads.
        deadline_s: seconds from now in which to have ended.
        slots: requests that a judge has under way at once.
        judges: the options of `serve` for each judge.

    Returns:
        The exit status: 0 all is answered, 75 something is left for the next start, 1 the judge
        does not come up, 2 an error for the user to correct.
    """
    ends_at = math.inf if deadline_s is None else time.monotonic() + deadline_s
    try:
        if deadline_s is not None and deadline_s <= 2 * RESERVE_S:
            raise UsageError(
                f"--deadline {deadline_s:g} is too short: {RESERVE_S:g} s of it are for the end"
            )
        wanted, problems = read_requests(requests)
        shards = Shards(answers)
        found = read_answers(answers)
        for problem in (*problems, *found.problems):
            _say(f"left out: {problem}")
        places = [_place(number, words, slots) for number, words in enumerate(judges)]
        batch = Batch(wanted, found, shards, places, ends_at=ends_at, say=_say)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: batch.stop(signal.Signals(number).name))
        left = batch.run()
    except UsageError as error:
        _say(str(error))
        return USAGE
    except EvaluatorUnavailable as error:
        _say(str(error))
        return UNAVAILABLE
    _say(f"{len(wanted) - left} of {len(wanted)} requests are answered in {answers}")
    return RESUMABLE if left else ANSWERED


def _place(number: int, words: Sequence[str], slots: int | None) -> Place:
    command = [sys.executable, "-m", "evolve.worker", "serve", *words]
    start = partial(WorkerProcess.spawn, command, dict(os.environ))
    return Place(f"judge {number}", start, DEADLINES, slots)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
