"""How fast the seeds of KernelBench levels are, and torch.compile: by events, without the judge.

    export KERNELBENCH_PATH=KernelBench
    python -m tests.benchmarks.gpu_kinds 2 --problems 1-40 --seconds 120
    python -m tests.benchmarks.gpu_kinds 1 2 --problems 1/3,2/40-60 --out lines.jsonl

A quick look, half a second for a program: which kind is fast where, and which kernels take the time
(`--profile`). Problems run in processes of their own, forked from one that has imported the
compiler; kernels are compiled side by side, and what works on the GPU does so alone (but for calls
of vendors' libraries while a program that has some is compiled). Inputs are not hidden, one outcome
is compared with the reference's, and the cache is as warm as the sizes leave it: figures that count
come from `evolve bench`.

With `--out` a file that holds lines already is gone on with: tasks that are done are left alone.
`--seconds 0` prints what it holds. What compilers and dying processes say is beside it, in `.log`.
A task begins when the memory that it seems to take is free; one that takes more than there is comes
once more, alone, when the others are through.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from evolve.tasks.suites.kernelbench import list_problems
from tests.benchmarks import json_lines
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.gpu_forks import Turns, fork, hush, kill, prepare, until_stopped
from tests.benchmarks.kinds_child import LOST, MEMORY, Attempt, look
from tests.benchmarks.kinds_summary import done, summarise

PROCESSES = 14
_MAX_TASK_S = 60.0  # seconds that a task has the GPU for itself; a kernel may hang


def main() -> None:
    options = parsed()
    hush()
    print_conditions()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        answers = options.out or Path(folder) / "kinds.jsonl"
        answers.touch()
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder) / "inductor")
        tasks = list(asked(options.levels, options.problems))
        random.Random(0).shuffle(tasks)  # large ones apart; what is not reached is of all kinds
        left = [task for task in tasks if task not in done(json_lines.read(answers))]
        if options.seconds > 0:
            prepare()
            Looking(left, answers, Turns(Path(folder) / "lock"), options).go()
        summarise(json_lines.read(answers), tasks)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("levels", type=int, nargs="+")
    parser.add_argument("--problems", default="1-100", help="3,40-60 of all levels, or 1/3,2/40-60")
    parser.add_argument("--seconds", type=float, default=120, help="for all")
    parser.add_argument("--profile", action="store_true", help="time of each kernel as well")
    parser.add_argument("--first", type=int, default=99,
                        help="programs for each operator and variant of the compiler")  # fmt: skip
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--device", default="cuda", help="cpu, to try this program out")
    parser.add_argument("--out", type=Path, help="of the lines of JSON")
    return parser.parse_args()


def asked(levels: Sequence[int], problems: str) -> Iterator[str]:
    """Names of the checkout's tasks that are meant, level by level."""
    wanted = set()
    for part in problems.split(","):
        level, _, numbers = part.rpartition("/")
        first, _, last = numbers.partition("-")
        for each in [int(level)] if level else levels:
            wanted |= {(each, number) for number in range(int(first), int(last or first) + 1)}
    for level, number, _ in list_problems():
        if level in levels and (level, number) in wanted:
            yield f"{level}/{number}"


class Looking:
    """At tasks, several at once.

    Args:
        tasks: by name.
        answers: the file of lines.
        turns: on the device.
        options: of the command.
    """

    def __init__(
        self, tasks: Sequence[str], answers: Path, turns: Turns, options: argparse.Namespace
    ) -> None:
        self._left, self._again = list(tasks), list[str]()
        self._answers, self._turns, self._options = answers, turns, options
        self._live: dict[str, BaseProcess] = {}
        self._begun = set[str]()
        self._old = len(json_lines.read(answers))  # lines of other runs

    def go(self) -> None:
        until = time.monotonic() + self._options.seconds
        try:
            with until_stopped():
                while (self._left or self._again or self._live) and time.monotonic() < until:
                    self._start()
                    time.sleep(0.1)
                    self._end()
        finally:
            kill(*self._live.values())

    def _start(self) -> None:
        while self._left and len(self._live) < PROCESSES:
            self._fork(self._left.pop(0), last=False)
        if self._again and not self._left and not self._live:
            self._fork(self._again.pop(0), last=True)

    def _fork(self, task: str, *, last: bool) -> None:
        log = self._answers.with_suffix(".log")
        attempt = Attempt(last, self._kinds(task) if task in self._begun else frozenset())
        given = task, self._answers, self._turns, self._options, attempt
        self._begun.add(task)
        self._live[task] = fork(log, look, *given)

    def _kinds(self, task: str) -> frozenset[str]:
        """Of a task's programs, as far as this run has come."""
        rows = json_lines.read(self._answers)[self._old :]
        return frozenset(row["kind"] for row in rows if row["task"] == task)

    def _end(self) -> None:
        """Of tasks that are through, and of one whose kernel hangs."""
        holder, seconds = self._turns.longest()
        for task, process in list(self._live.items()):
            if process.pid == holder and seconds > _MAX_TASK_S:
                kill(process)
                self._note(task, kind="stuck", error=f"had the device for {seconds:.0f} s")
                self._note(task, kind="done")
            elif process.is_alive():
                continue
            elif process.exitcode == MEMORY:
                self._again.append(task)
            elif process.exitcode == LOST:
                self._left.insert(0, task)
            elif process.exitcode:
                self._note(task, kind="died", error=f"exit status {process.exitcode}")
            del self._live[task]

    def _note(self, task: str, **about: object) -> None:
        json_lines.add(self._answers, {"task": task} | about)


if __name__ == "__main__":
    main()
