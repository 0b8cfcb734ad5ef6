"""Evaluations that workers fetch over HTTP (`cluster=pull`): overhead, and 64 judges at once.

    python -m tests.benchmarks.bench_pull [--rounds 200] [--judges 64] [--latency 2] [--seconds 60]

The overhead is that of one `evolve work` over the local pool: the same stub judge in a process of
its own on both sides, asked in turn, so that load changes both alike. The judges at once are in one
process; the search's side is this process. They answer after the latency, first all alike, so that
answers come in bursts, then give or take a share of it.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from evolve.core.evaluation import Fidelity
from evolve.core.protocols import EvaluationRequest, Evaluator
from evolve.core.task import Task
from evolve.evaluation import Deadlines, LocalEvaluator, PooledEvaluator
from evolve.worker.service.dispatch.place import Place
from evolve.worker.service.dispatch.pool import Pool
from tests.benchmarks.bench_serve import cpu_s
from tests.benchmarks.conditions import print_conditions
from tests.serve.pulling import (
    WORKER,
    Judge,
    free_port,
    searching,
    start_work,
    working,
)

LATENCY_S = 0.02  # of the stub judge that the overhead is measured with
TASK = Task(name="task", source="class Model: ...\n" + "# a reference of 4 KiB\n" * 180)
ROOT = Path(__file__).parents[2]


def request(number: int) -> EvaluationRequest:
    """A candidate of 8 KiB."""
    source = f"# speedup 1.{number}\n" + "class ModelNew: ...  # a line of a kernel\n" * 200
    return EvaluationRequest(
        task=TASK, instance=f"{number:064}", source=source, fidelity=Fidelity.SEARCH
    )


async def overhead(folder: Path, rounds: int) -> None:
    """Time the same evaluations here and over HTTP, in turn."""
    command = [sys.executable, "-SE", str(WORKER), "1", str(LATENCY_S)]
    local = LocalEvaluator({"stub": command}, {**os.environ, "CUDA_STUB_CLASS": "cpu-stub"})
    async with AsyncExitStack() as stack:
        await local.up()
        stack.push_async_callback(local.close)
        (folder / "host").mkdir()
        port = free_port()
        worker = start_work(folder / "host", port, latency_s=LATENCY_S)
        stack.callback(worker.wait)
        stack.callback(worker.kill)
        pull = await stack.enter_async_context(searching(port, lease_s=20.0))
        times: dict[str, list[float]] = {"local": [], "http": []}
        for number in range(rounds):
            for name, judge in (("local", local), ("http", pull)):
                times[name].append(await timed(judge, number))
    differences = [http - here for here, http in zip(*times.values(), strict=True)]
    for name, took in times.items():
        print(f"{name:<10}median {1e3 * statistics.median(took):6.1f} ms")
    low, high = interval(differences)
    print(
        f"overhead  median {1e3 * statistics.median(differences):6.1f} ms "
        f"(95 % interval {1e3 * low:.1f} to {1e3 * high:.1f}), of {rounds} pairs"
    )


async def timed(judge: Evaluator, number: int) -> float:
    began = time.perf_counter()
    await judge.evaluate(request(number))
    return time.perf_counter() - began


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, by the bootstrap."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[974]


async def at_once(judges: int, latency_s: float, spread: float, seconds: float) -> None:
    """Keep so many judges busy for a time: in a pool of this process, then over HTTP."""
    places = [
        Place(f"judge {n}", Judge(latency_s, spread).start, Deadlines()) for n in range(judges)
    ]
    pool = Pool(places, print)
    await pool.up()
    here = await kept_busy(PooledEvaluator(pool, Deadlines()), judges, seconds)
    await pool.close()
    what = f"{judges} judges of {latency_s:g} s, +-{100 * spread:.0f} %"
    print(f"{what}  {busy(here, judges, latency_s)}  without HTTP")
    command = [sys.executable, "-m", "tests.benchmarks.bench_pull", "--judges", str(judges)]
    port = free_port()
    words = ["--serve", str(port), "--latency", str(latency_s), "--spread", str(spread)]
    workers = subprocess.Popen([*command, *words], cwd=ROOT)
    try:
        async with searching(port, lease_s=20.0) as judge:
            while judge.slots < judges:
                await asyncio.sleep(0.1)
            own_s, theirs_s = time.process_time(), cpu_s(workers.pid)
            there = await kept_busy(judge, judges, seconds)
            own_s, theirs_s = time.process_time() - own_s, cpu_s(workers.pid) - theirs_s
    finally:
        workers.kill()
        workers.wait()
    print(f"{what}  {busy(there, judges, latency_s)}  over HTTP")
    print(
        f"over HTTP as many as {100 * there / here:.1f} % of those without; processor time of one: "
        f"search {1e3 * own_s / (there * seconds):.1f} ms, "
        f"workers {1e3 * theirs_s / (there * seconds):.1f} ms"
    )


async def kept_busy(judge: Evaluator, judges: int, seconds: float) -> float:
    """Evaluations a second, from the first question to the last answer."""
    numbers, ends = iter(range(10**9)), list[float]()
    began = time.perf_counter()

    async def ask() -> None:
        while time.perf_counter() - began < seconds:
            await judge.evaluate(request(next(numbers)))
            ends.append(time.perf_counter())

    await asyncio.gather(*(ask() for _ in range(judges)))
    return len(ends) / (max(ends) - began)


def busy(rate: float, judges: int, latency_s: float) -> str:
    return f"{rate:5.1f} evaluations/s, {100 * rate * latency_s / judges:.1f} % busy"


async def serve(port: int, judges: int, latency_s: float, spread: float) -> None:
    """Be the workers, until killed."""
    async with working(port, *(Judge(latency_s, spread) for _ in range(judges))) as task:
        await task


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=200)
    arguments.add_argument("--judges", type=int, default=64)
    arguments.add_argument("--latency", type=float, default=2.0)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--spread", type=float, default=0.25)
    arguments.add_argument("--serve", type=int)
    options = arguments.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.judges, options.latency, options.spread))
        return
    print_conditions()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        asyncio.run(overhead(Path(folder), options.rounds))
    os.chdir(ROOT)
    for spread in (0.0, options.spread):
        asyncio.run(at_once(options.judges, options.latency, spread, options.seconds))
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
