"""The judge on a GPU: ties, bursts, faults, and KernelBench's evaluator beside it.

    python -m tests.benchmarks.bench_gpu verdicts --candidates 40
    python -m tests.benchmarks.bench_gpu aa --runs 10
    python -m tests.benchmarks.bench_gpu eager
    python -m tests.benchmarks.bench_gpu seeds
    python -m tests.benchmarks.bench_gpu burst --candidates 256
    python -m tests.benchmarks.bench_gpu faults --injections 100
    python -m tests.benchmarks.bench_gpu kernelbench --part 1 --parts 2

Needs torch, triton, numpy and pyyaml on a host with a CUDA device. Tasks are the shipped ones at
size gpu and, with `--problems 1/19,1/40` and KERNELBENCH_PATH set, problems of a KernelBench
checkout.
"""

import argparse
import random
import tempfile
import time
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Evaluation, Status
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.tasks.shipped import shipped_names
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.gpu_candidates import RECIPES
from tests.benchmarks.gpu_eager import eager_times
from tests.benchmarks.gpu_kernelbench import compare
from tests.benchmarks.gpu_ties import against_itself, default_problems
from tests.benchmarks.gpu_verdicts import verdicts
from tests.gpu.programs import RIGHT, SMALL, TASK, torch_program, triton_program
from tests.worker.serving import Worker

STAGES = ("compile", "smoke", "correctness", "labels", "profile", "timing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=(*PARTS, "kernelbench"))
    parser.add_argument("--device", default="cuda", help="cpu, to try this program out")
    parser.add_argument("--runs", type=int, default=10, help="of aa, for each task")
    parser.add_argument("--seconds", type=float, default=1500,
                        help="of aa, eager: no start later; of others: for all")  # fmt: skip
    parser.add_argument("--candidates", type=int, default=256, help="of burst")
    parser.add_argument("--injections", type=int, default=100, help="of faults")
    parser.add_argument("--tasks", default="", help="names, by comma; all shipped ones otherwise")
    parser.add_argument("--problems", default="", help="of KernelBench: LEVEL/ID, by comma")
    parser.add_argument("--at-once", type=int, default=8, help="of verdicts, for each judge")
    parser.add_argument("--raw", type=Path, help="of verdicts: a .jsonl.gz for what is measured")
    parser.add_argument("--part", type=int, default=1, help="of kernelbench: which, from 1 on")
    parser.add_argument("--parts", type=int, default=1, help="and of how many")
    parser.add_argument("--fidelity", default="search", help="of kernelbench")
    parser.add_argument("--our-seconds", type=float, default=500, help="of kernelbench: for all")
    parser.add_argument("--kernelbench-seconds", type=float, default=900, help="for all")
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir(), "kernelbench.log"),
                        help="what KernelBench prints")  # fmt: skip
    options = parser.parse_args()
    print_conditions()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "kernelbench":
            compare(Path(folder), options)
            return
        worker = Worker(Path(folder), "--device", options.device, "--call-timeout", "8")
        try:
            print(worker.ask("hello"))
            PARTS[options.what](worker, options)
        finally:
            worker.close()


def tasks(options: argparse.Namespace) -> list[Task]:
    """The tasks asked for, at the device's size where they have sizes."""
    size = "cpu" if options.device == "cpu" else "gpu"
    names = [name for name in options.tasks.split(",") if name]
    problems = [f"kernelbench:{name}" for name in options.problems.split(",") if name]
    if not names and not problems:
        names = shipped_names()
    return [find_task(name, size=size) for name in (*names, *problems)]


def ties(worker: Worker, options: argparse.Namespace) -> None:
    """Eager against eager."""
    if not options.tasks and not options.problems:
        options.problems = ",".join(default_problems())
        options.tasks = ",".join(shipped_names())
    against_itself(worker, tasks(options), options)


def eager(worker: Worker, options: argparse.Namespace) -> None:
    """Eager's times by events beside KernelBench's own."""
    if not options.tasks and not options.problems:
        options.problems = ",".join(RECIPES)
    eager_times(worker, tasks(options), options)


def seeds(worker: Worker, options: argparse.Namespace) -> None:
    """The shipped Triton programs against eager."""
    for task in tasks(options):
        for source in task.seeds:
            if "@triton.jit" not in source:
                continue
            start = time.monotonic()
            verdict = worker.evaluate(source, task, fidelity="search")
            ratio = verdict.ratios.get("eager")
            told = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "none"
            print(
                f"{task.name}: {verdict.status}, custom {verdict.custom}, ratio {told}, "
                f"{time.monotonic() - start:.1f} s, {verdict.durations_s}",
                verdict.feedback[:300],
                flush=True,
            )


def burst(worker: Worker, options: argparse.Namespace) -> None:
    """A mix of candidates at fidelity reward: wall time to the last answer."""
    kinds = {
        "not compiling": lambda i: triton_program(f"tl.no_such_{i}(value)"),
        "wrong": lambda i: triton_program(f"value * 3 + {i}.0"),
        "slow": lambda i: RIGHT.replace("BLOCK = 2048", f"BLOCK = 64  # {i}"),
        "fast": lambda i: RIGHT + f"\n# {i}\n",
    }
    mix = [kinds[name](i) for i in range(options.candidates // 4) for name in kinds]
    random.Random(0).shuffle(mix)
    start = time.monotonic()
    answers = [v for v in _all(worker, mix, TASK, "reward", options.seconds) if v]
    total = time.monotonic() - start
    counts: dict[str, int] = {}
    for verdict in answers:
        counts[verdict.status] = counts.get(verdict.status, 0) + 1
    print(f"burst of {len(mix)}: {len(answers)} answers in {total:.1f} s, {counts}")
    for stage in STAGES:
        times = sorted(v.durations_s[stage] for v in answers if stage in v.durations_s)
        if times:
            print(
                f"  {stage}: p50 {_quantile(times, 0.5):.2f} s, p99 {_quantile(times, 0.99):.2f} s"
            )
    device = [v.device_time_s for v in answers]
    print(f"  exclusive device time: {sum(device):.1f} s in all, {max(device):.2f} s at most")


FAULTS = {
    "illegal access": RIGHT.replace("x + at", "x + at * 1000003"),
    "device assert": torch_program(
        "i = torch.full((1,), 9, device='cuda')\ntorch.ones(1, device='cuda')[i]\nreturn right(x)"
    ),
    "out of device memory": torch_program("a = torch.empty(1 << 42, device='cuda')\nreturn x"),
    "out of host memory": torch_program("a = bytearray(200 << 30)\nreturn right(x)"),
    "segmentation fault": torch_program("import ctypes\nctypes.string_at(0)"),
    "exit": torch_program("os._exit(0)"),
    "crash at import": torch_program("return right(x)", "os.kill(os.getpid(), signal.SIGKILL)"),
    "exception": torch_program("raise ValueError('no')"),
    "hang at exit": torch_program(
        "return right(x)", "import atexit\natexit.register(lambda: time.sleep(600))"
    ),
    "misaligned access": RIGHT.replace(
        "x + at", "(x.to(tl.int64) + 1).to(tl.pointer_type(tl.float32)) + at"
    ),
}


def faults(worker: Worker, options: argparse.Namespace) -> None:
    """Violent candidates among good ones: no good verdict may change."""
    rng = random.Random(1)
    names = [rng.choice(list(FAULTS)) for _ in range(options.injections)]
    bad = [(name, FAULTS[name] + f"\n# {i}\n") for i, name in enumerate(names)]
    good = [("good", RIGHT + f"\n# good {i}\n") for i in range(options.injections)]
    mix = bad + good
    rng.shuffle(mix)
    start = time.monotonic()
    answers = _all(worker, [source for _, source in mix], SMALL, "check", options.seconds)
    changed = 0
    table: dict[str, dict[str, int]] = {}
    for (name, _), verdict in zip(mix, answers, strict=True):
        status = verdict.status if verdict else "no answer"
        row = table.setdefault(name, {})
        row[status] = row.get(status, 0) + 1
        changed += name == "good" and status is not Status.CORRECT
    print(
        f"{len(bad)} injections among {len(good)} good candidates: {changed} good verdicts "
        f"changed, the worker is {'alive' if worker.process.poll() is None else 'gone'}, "
        f"{time.monotonic() - start:.1f} s"
    )
    for name, row in sorted(table.items()):
        print(f"  {name}: {row}")


def _all(
    worker: Worker, sources: list[str], task: Task, fidelity: str, seconds: float
) -> list[Evaluation | None]:
    """The verdict on each source, None where it does not come within so many seconds."""
    sent: list[Future[dict[str, Any]]] = [
        worker.send("evaluate", task=task.to_json(), source=source, fidelity=fidelity)
        for source in sources
    ]
    wait(sent, seconds)
    return [
        Evaluation.from_json(future.result()["result"]) if future.done() else None
        for future in sent
    ]


def _quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def rate(worker: Worker, options: argparse.Namespace) -> None:
    """Right candidates of ten tasks: verdicts a minute."""
    verdicts([worker], options)


PARTS = {
    "verdicts": rate,
    "aa": ties,
    "eager": eager,
    "seeds": seeds,
    "burst": burst,
    "faults": faults,
}


if __name__ == "__main__":
    main()
