"""The judge beside KernelBench's own evaluator: the same candidates, trials, machine and run.

Of every problem there are ten candidates (`gpu_candidates`). The judge gets all of them, cold: its
start and what it makes ready for a problem are charged. KernelBench's `eval_kernel_against_ref`
gets one right, one wrong, and both that do not compile, and its seconds are scaled by class; it is
charged neither its imports nor the fresh process for each candidate that its own batch script has,
which are reported apart. With several parts, each does its share of the problems, both sides of it:

    python -m tests.benchmarks.bench_gpu kernelbench --part 1 --parts 2
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Evaluation, Status
from evolve.core.task import Task
from evolve.tasks import find_task
from tests.benchmarks.gpu_candidates import RECIPES, candidates
from tests.worker.serving import ROOT, Worker

TRIALS, TIMINGS = 5, 100  # the defaults of KernelBench's batch script
CLASSES = ("right", "wrong", "not compiling")
_EVENTS_S = 60.0  # to wait for the reference's times by events
_MIN_S = 20.0  # of KernelBench, to begin with a problem
_SHORT_MS = 10.0  # problems that take longer have no goal for a candidate's seconds
_ON_DEVICE = ("smoke", "correctness", "labels", "profile", "speed_of_light")
_TAKEN = {"right": (0,), "wrong": (0,), "not compiling": (0, 1)}  # by KernelBench


@dataclass
class Problem:
    """A problem, its candidates by class, and what both sides said of them."""

    name: str
    task: Task
    sources: dict[str, list[str]]
    ours: dict[str, list[Evaluation]] = field(default_factory=dict)
    theirs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    events: dict[str, float] = field(default_factory=dict)
    trouble: str = ""


def problems(part: int, parts: int) -> list[Problem]:
    """The share of a part, from 1 on; the large ones are spread over the parts."""
    chosen = []
    for name in list(RECIPES)[part - 1 :: parts]:
        task = find_task(f"kernelbench:{name}", size="gpu")
        chosen.append(Problem(name, task, candidates(name, task.source)))
    return chosen


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Both sides, one after the other, and the table."""
    chosen = problems(options.part, options.parts)
    print(f"{len(chosen)} problems: {', '.join(problem.name for problem in chosen)}")
    print(
        f"candidates: {', '.join(f'{len(chosen[0].sources[c])} {c}' for c in CLASSES)} each, all "
        "of them Triton kernels in the place of the reference's forward; of those that do not "
        "compile one fails in Triton when it is launched, one is no Python"
    )
    our_seconds = _judge_all(folder, chosen, options)
    start_s = _evaluate_all(chosen, options.kernelbench_seconds, options.log)
    _print_problems(chosen)
    _print_summary(chosen, our_seconds, start_s)


def _judge_all(folder: Path, chosen: Sequence[Problem], options: argparse.Namespace) -> float:
    """Seconds from before the worker's start to the last verdict; then the reference's events."""
    start = time.monotonic()
    worker = Worker(folder, "--device", options.device, "--call-timeout", "20")
    try:
        sent = [
            (problem, name, worker.send("evaluate", task=problem.task.to_json(), source=source,
                                        fidelity=options.fidelity))
            for problem in chosen for name in CLASSES for source in problem.sources[name]
        ]  # fmt: skip
        for number, (problem, name, future) in enumerate(sent, 1):
            left = start + options.our_seconds - time.monotonic()
            _take(problem, name, future, max(left, 0.0))
            if number == len(sent) or sent[number][0] is not problem:
                passed = time.monotonic() - start
                print(f"judge {problem.name}: all verdicts after {passed:.1f} s", flush=True)
        seconds = time.monotonic() - start
        for problem in chosen:
            if not problem.trouble:
                with contextlib.suppress(TimeoutError):
                    reply = worker.send("events", task=problem.task.to_json()).result(_EVENTS_S)
                    problem.events = next(iter(reply.get("result", {}).values()), {})
    finally:
        worker.close()
    return seconds


def _take(problem: Problem, name: str, future: "Future[dict[str, Any]]", seconds: float) -> None:
    try:
        reply = future.result(seconds)
    except TimeoutError:
        problem.trouble = "the judge had no time left for all of it"
        return
    if "result" in reply:
        problem.ours.setdefault(name, []).append(Evaluation.from_json(reply["result"]))
    else:
        problem.trouble = reply["error"]["message"][:300]


@contextlib.contextmanager
def evaluator_process(log: Path, limit_s: float) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """Its evaluator's process, which ends after so long, and the seconds until it was ready."""
    start = time.monotonic()
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.kernelbench_child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
        )  # fmt: skip
    clock = threading.Timer(limit_s, process.kill)
    clock.start()
    try:
        ready = process.stdout.readline()
        late = time.monotonic() - start > limit_s
        assert ready or late, f"KernelBench's evaluator does not start: see {log}"
        yield process, time.monotonic() - start
    finally:
        clock.cancel()
        process.kill()
        process.wait()


def _evaluate_all(chosen: Sequence[Problem], limit_s: float, log: Path) -> float:
    """KernelBench's answers, as far as the seconds go; the median seconds of a start."""
    until, starts = time.monotonic() + limit_s, []
    for problem in chosen:
        if time.monotonic() > until - _MIN_S:
            problem.trouble = problem.trouble or "KernelBench had no time left for it"
            continue
        with evaluator_process(log, until - time.monotonic()) as (process, seconds):
            starts.append(seconds)
            for name, at in [(name, at) for name, taken in _TAKEN.items() for at in taken]:
                asked = {
                    "reference": problem.task.source,
                    "candidate": problem.sources[name][at],
                    "trials": TRIALS,
                    "timings": TIMINGS,
                }
                with contextlib.suppress(BrokenPipeError):  # it has ended: there is no answer
                    process.stdin.write(json.dumps(asked) + "\n")
                    process.stdin.flush()
                line = process.stdout.readline()
                if not line:
                    why = "had no time left for" if time.monotonic() > until else "died of"
                    problem.trouble = problem.trouble or f"KernelBench {why} one {name}"
                    break
                problem.theirs.setdefault(name, []).append(json.loads(line))
        print(f"KernelBench {problem.name}: {_seconds_of(problem):.1f} s for ten", flush=True)
    return _median(starts)


def _seconds_of(problem: Problem) -> float:
    """Of all candidates, by those of each class that KernelBench was given."""
    return sum(
        len(problem.sources[name]) * statistics.fmean(row["seconds"] for row in rows)
        for name, rows in problem.theirs.items()
    )


def _print_problems(chosen: Sequence[Problem]) -> None:
    print("problem | judge: verdicts | device s: right, wrong, not compiling | eager ms: judge's "
          "clock, by events as KernelBench does, KernelBench | KernelBench s for ten")  # fmt: skip
    for problem in chosen:
        if problem.trouble:
            print(f"{problem.name} | {problem.trouble}")
        counts = {name: _counted([e.status for e in problem.ours.get(name, ())])
                  for name in CLASSES}  # fmt: skip
        used = [f"{_median([_device_s(e) for e in problem.ours.get(n, ())]):.2f}" for n in CLASSES]
        ours, by_events, theirs = _eager(problem)
        apart = f" ({by_events / theirs - 1:+.1%})" if by_events and theirs else ""
        print(
            f"{problem.name} | {counts} | {', '.join(used)} | {ours:.4g}, {by_events:.4g}, "
            f"{theirs:.4g}{apart} | {_seconds_of(problem):.1f}"
        )


def _print_summary(chosen: Sequence[Problem], our_seconds: float, start_s: float) -> None:
    done = [p for p in chosen if set(p.theirs) == set(CLASSES)]
    ours = sum(len(rows) for p in chosen for rows in p.ours.values())
    theirs = sum(_seconds_of(p) for p in done)
    count = sum(len(sources) for p in done for sources in p.sources.values())
    our_rate, their_rate = 60 * ours / our_seconds, 60 * count / theirs if theirs else 0.0
    isolated = 60 * count / (theirs + count * start_s) if theirs else 0.0
    print(f"judge: {ours} candidates in {our_seconds:.1f} s, {our_rate:.1f} per minute")
    print(
        f"KernelBench: {count} candidates in {theirs:.1f} s (scaled by class), {their_rate:.1f} "
        f"per minute; with a process of {start_s:.1f} s for each, {isolated:.1f} per minute"
    )
    if theirs:
        print(f"judge / KernelBench: {our_rate / their_rate:.1f} ({our_rate / isolated:.1f})")
    for name in CLASSES:
        rows = [e for p in chosen if _eager(p)[0] < _SHORT_MS for e in p.ours.get(name, ())]
        used = sorted(map(_device_s, rows))
        if used:
            print(f"{name}, references under {_SHORT_MS:g} ms: device s median "
                  f"{statistics.median(used):.2f}, worst {used[-1]:.2f} of {len(used)}; timing "
                  f"alone {_median([e.device_time_s for e in rows]):.2f}")  # fmt: skip
    widths = [e.ratios["eager"].half_width for p in chosen for e in p.ours.get("right", ())
              if "eager" in e.ratios]  # fmt: skip
    if widths:
        print(f"half-widths: median {_median(widths):.2%}, {sum(w <= 0.01 for w in widths)} of "
              f"{len(widths)} within 1 %")  # fmt: skip
    agreeing = [abs(b / t - 1) <= 0.02 for _, b, t in map(_eager, done) if b and t]
    print(f"eager times by events within 2 % of KernelBench's: {sum(agreeing)} of {len(agreeing)}")
    wrongly = [p.name for p in done if not p.theirs["right"][0].get("correct")]
    missed = [p.name for p in done if p.theirs["wrong"][0].get("correct")]
    print(f"KernelBench: right ones rejected in {wrongly or 'none'}, a wrong one paid in "
          f"{missed or 'none'}")  # fmt: skip
    odd = [f"{p.name}: {e.feedback[:160]!r}" for p in chosen for e in p.ours.get("right", ())
           if e.status is not Status.CORRECT]  # fmt: skip
    odd += [f"{p.name}: a wrong one passed" for p in chosen for e in p.ours.get("wrong", ())
            if e.status is Status.CORRECT]  # fmt: skip
    print("judge: " + ("\n  ".join(odd) or "all right ones correct, no wrong one passed"))


def _device_s(evaluation: Evaluation) -> float:
    """Seconds in which the GPU may have worked for it: more than it did, others shared it."""
    shared = sum(evaluation.durations_s.get(stage, 0.0) for stage in _ON_DEVICE)
    return shared + evaluation.device_time_s


def _eager(problem: Problem) -> tuple[float, float, float]:
    """Eager's time in ms: by the judge's clock, by events, by KernelBench; 0 where unknown."""
    rows = [e for e in problem.ours.get("right", ()) if e.cases and e.cases[0].times_ms]
    ours = _median([e.cases[0].times_ms["eager"].value for e in rows])
    theirs = problem.theirs.get("right") or [{}]
    return ours, problem.events.get("kernelbench_ms", 0.0), max(theirs[0].get("eager_ms", 0.0), 0.0)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names)) or "none"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
