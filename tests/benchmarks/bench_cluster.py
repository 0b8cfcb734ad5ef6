"""Judges of a Ray cluster on this machine: the cost of an evaluation, and how many are kept busy.

    python -m tests.benchmarks.bench_cluster [--judges 8,32] [--pairs 300] [--search 90]

Search, Ray and stub judges share the cores of this machine. The overhead is that of an evaluation
by a stub that answers at once, asked of the local pool and of Ray in turns. Then so many stubs take
`latency` seconds each; twice as many evaluations are kept under way. Processor time is that of all
processes that the benchmark has started, so that it hardly depends on other load.
"""

import argparse
import asyncio
import os
import shlex
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from evolve.core.evaluation import Fidelity
from evolve.core.protocols import EvaluationRequest, Evaluator
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from evolve.evaluation.cluster import RayEvaluator
from evolve.testing.model_server import ModelServer, Request
from tests.benchmarks.bench_serve import cpu_s
from tests.benchmarks.conditions import print_conditions
from tests.cli.at_terminal import launch
from tests.cli.recording import settings
from tests.cli.test_compiler_seeds import TASK as REFERENCE
from tests.serve.serving import candidate
from tests.worker.serving import family_of

WORKER = Path(__file__).parents[1] / "serve" / "stub_worker.py"
TASK = Task(name="stub", source="class Model: ...")
START = "import triton\n\n\nclass ModelNew:\n    NUMBER = 0\n"
PATIENCE_S = 900.0


def stub(latency_s: float) -> list[str]:
    return ["-SE", str(WORKER), "1", str(latency_s)]


async def evaluate(evaluator: Evaluator, number: int) -> float:
    """Seconds that an evaluation takes."""
    request = EvaluationRequest(
        task=TASK,
        instance=str(number),
        source=candidate(f"speedup 1.{number}"),
        fidelity=Fidelity.SCREEN,
    )
    began = time.perf_counter()
    await evaluator.evaluate(request)
    return time.perf_counter() - began


async def overhead(address: str, pairs: int) -> None:
    """An evaluation through Ray beside one by the local pool, in turns."""
    local = LocalEvaluator({"stub": [sys.executable, *stub(0)]}, dict(os.environ))
    await local.up()
    remote = await RayEvaluator.start(address, stub(0), is_gpu=True, judges=1)
    sides: dict[str, list[float]] = {"local pool": [], "through Ray": []}
    for number in range(pairs):
        for side, evaluator in zip(sides, (local, remote), strict=True):
            sides[side].append(1e3 * await evaluate(evaluator, number))
    for side, took in sides.items():
        cuts = statistics.quantiles(took, n=20)
        print(f"{side:<14}{statistics.median(took):>7.2f} ms (p95 {cuts[18]:.1f} ms)")
    more = [far - near for near, far in zip(*sides.values(), strict=True)]
    print(f"{'more':<14}{statistics.median(more):>7.2f} ms in the median of {pairs} pairs")
    await remote.close()
    await local.close()


async def busy(address: str, judges: int, latency_s: float, seconds: float) -> None:
    """The share of time in which so many judges judge, and its cost in processor time."""
    began = time.perf_counter()
    evaluator = await RayEvaluator.start(address, stub(latency_s), is_gpu=True, judges=judges)
    while evaluator.devices < judges and time.perf_counter() - began < PATIENCE_S:
        await asyncio.sleep(0.1)
    print(f"{evaluator.devices} judges after {time.perf_counter() - began:.0f} s", flush=True)
    each = max(1, round(seconds / latency_s))
    numbers = iter(range(each * evaluator.devices))
    began, used_s, own_s = time.perf_counter(), family_cpu_s(), time.process_time()

    async def ask() -> None:
        for number in numbers:
            await evaluate(evaluator, number)

    await asyncio.gather(*(ask() for _ in range(2 * evaluator.devices)))
    own_s, used_s = time.process_time() - own_s, family_cpu_s() - used_s
    wall_s, done = time.perf_counter() - began, each * evaluator.devices
    each_ms, own_ms = 1e3 * used_s / done, 1e3 * own_s / done
    print(
        f"{judges:>3} judges of {latency_s:g} s: {done / wall_s:.1f} evaluations/s, busy "
        f"{100 * each * latency_s / wall_s:.0f} % of the time; processor time "
        f"{used_s / wall_s:.2f} cores, {each_ms:.1f} ms an evaluation, "
        f"{own_ms:.1f} ms of it in the search's process",
        flush=True,
    )
    await evaluator.close()


def search(address: str, judges: int, latency_s: float, seconds: int) -> None:
    """The same with a whole search in front, whose scripted model answers at once."""
    script = Path("stub-python").absolute()
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {shlex.join(stub(latency_s))}\n")
    script.chmod(0o755)
    Path("mine.py").write_text(REFERENCE)
    Path("start.py").write_text(START)
    judged, samples = Path("judged"), []
    judged.unlink(missing_ok=True)

    def sample() -> None:
        while len(samples) < seconds + 60:
            done = judged.read_text().count("\n") if judged.exists() else 0
            samples.append((time.perf_counter(), done, time.process_time()))
            time.sleep(1)

    os.environ["OPENAI_API_KEY"] = "none"
    threading.Thread(target=sample, daemon=True).start()
    with ModelServer(program) as server:
        words = [
            *("task=./mine.py", "cluster=ray", f"cluster.address={address}", "device=cuda"),
            *(f"cluster.judges={judges}", f"device.python={script}", "initial=[start.py]"),
            *("operators=llm", "llm.model=openai/scripted", f"llm.api_base={server.api_base}"),
            *("llm.price.prompt=0", "llm.price.completion=0", "llm.slots=32"),
            *(f"termination.wall_time={seconds}s", "termination.evaluations=1000000"),
            "termination.stagnation=null",
        ]
        asyncio.run(launch(settings(*words)))
    best = max(zip(samples, samples[20:], strict=False), key=lambda pair: pair[1][1] - pair[0][1])
    (began, before, own_before), (ended, after, own_after) = best
    rate = (after - before) / (ended - began)
    own_ms = 1e3 * (own_after - own_before) / max(1, after - before)
    print(
        f"a search before {judges} judges of {latency_s:g} s: {rate:.1f} evaluations/s in its best "
        f"20 s, busy {100 * rate * latency_s / judges:.0f} %; {own_ms:.1f} ms of processor time "
        "each in the process of the search and the scripted model",
        flush=True,
    )


def program(request: Request) -> str:
    source = START.replace("NUMBER = 0", f"NUMBER = {request.number + 1}")
    return f"```python\n{source}```"


def family_cpu_s() -> float:
    """Processor time of this process and all that came from it."""
    total = 0.0
    for pid in family_of(os.getpid()):
        try:
            total += cpu_s(pid)
        except OSError:
            continue
    return total


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--judges", default="8,32", help="numbers of stub judges")
    arguments.add_argument("--latency", type=float, default=2.0, help="seconds of an evaluation")
    arguments.add_argument("--seconds", type=float, default=30.0, help="for each number")
    arguments.add_argument("--pairs", type=int, default=300, help="for the overhead")
    arguments.add_argument("--search", type=int, default=0, help="seconds of a whole search")
    options = arguments.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "(?s).*"}
    from ray.cluster_utils import Cluster

    print_conditions()
    sizes = [int(word) for word in options.judges.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=0, num_gpus=max(sizes))
        asyncio.run(overhead(cluster.address, options.pairs))
        for size in sizes:
            asyncio.run(busy(cluster.address, size, options.latency, options.seconds))
            if options.search:
                search(cluster.address, size, options.latency, options.search)
        print_conditions()
        cluster.shutdown()
        os.chdir("/")


if __name__ == "__main__":
    main()
