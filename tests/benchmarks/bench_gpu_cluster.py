"""Verdicts a minute of one host's GPUs, by the local pool and through Ray in turns.

    python -m tests.benchmarks.bench_gpu_cluster --gpus 1,2,4 --within 480
    python -m tests.benchmarks.bench_gpu_cluster --gpus 1,2 --within 120 --stub 2
    python -m tests.benchmarks.bench_gpu_cluster --gpus 1 --within 120 --device cpu

For each number of GPUs both sides have their judges up at once, on the same GPUs, each warm for
every task. Then a round is one list of right candidates, as of `bench_gpu verdicts`, from the first
question to the last answer. Rounds are made in the order A B B A. A candidate's kernels are told
apart by a comment for each round, so that none is found compiled.

Needs Ray beside what `bench_gpu` needs. `--stub` and `--device cpu` try this program out.
"""

import argparse
import asyncio
import os
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from evolve.evaluation.cluster import RayEvaluator, start_cluster
from evolve.evaluation.pooled import PooledEvaluator
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.gpu_verdicts import requests
from tests.worker.serving import RELU_TASK, forward

STUB = Path(__file__).parents[1] / "serve" / "stub_worker.py"
SIDES = ("local pool", "through Ray")
UNUSED = {"half_width": None, "sandbox_require": "none", "sandbox_read": ()}
UNUSED |= {"cuda_include": (), "cuda_flags": ()}
OBJECTS_BYTES = 200 * 2**20  # Ray's store of objects: questions and answers are small
WARM_UP_S = 300.0


@dataclass(frozen=True, slots=True)
class Round:
    """One list of candidates, judged by one side.

    Attributes:
        seconds: from the first question to the last answer.
        verdicts: all of them.
        each_s: how long each took.
    """

    seconds: float
    verdicts: list[Evaluation]
    each_s: list[float]

    @property
    def a_minute(self) -> float:
        return 60 * len(self.verdicts) / self.seconds


@asynccontextmanager
async def sides(
    options: argparse.Namespace, gpus: int, address: str
) -> AsyncIterator[dict[str, PooledEvaluator]]:
    """Both evaluators with a judge for each GPU, all up."""
    slots, words = options.at_once, ["-SE", str(STUB), str(options.at_once), str(options.stub)]
    if options.stub:
        commands = {f"stub {number}": [sys.executable, *words] for number in range(gpus)}
        local = LocalEvaluator(commands, dict(os.environ))
        remote = RayEvaluator.start(address, words, is_gpu=True, judges=gpus)
    else:
        local = await LocalEvaluator.start(device=options.device, ids=range(gpus), slots=slots)
        remote = start_cluster(
            options.device, {**UNUSED}, address=address, judges=gpus, slots=slots
        )
    far = await remote
    try:
        await local.up()
        while far.devices < gpus:
            await asyncio.sleep(0.1)
        yield dict(zip(SIDES, (local, far), strict=True))
    finally:
        await far.close()
        await local.close()


def candidates(options: argparse.Namespace, gpus: int, mark: str) -> list[tuple[Task, str]]:
    """The list of a round; the mark is in every kernel."""
    names = options.tasks.split(",")
    if options.device == "cpu":
        sources = (forward(f"return right(x)  # {number}") for number in range(options.each))
        asked = [(RELU_TASK, source) for source in sources]
    else:
        asked = requests(-(-options.each // len(names)), names)
    marked = re.compile(r"(?m)^(    (?:tl\.store|return right)\(.*)$")
    return [
        (task, marked.sub(rf"\1  # {mark} {copy}", source))
        for copy in range(gpus)
        for task, source in asked
    ]


async def warm(evaluator: PooledEvaluator, asked: Sequence[tuple[Task, str]]) -> None:
    """Every task loaded, and its reference measured, at every place."""
    firsts = {task.name: (task, source) for task, source in asked}

    async def ask(place: object, task: Task, source: str) -> None:
        params = {"task": task.to_json(), "source": source, "fidelity": Fidelity.SEARCH.value}
        params |= {"opponents": {}, "target_speedups": {}, "repeat": 0}
        await place.ask("evaluate", params, WARM_UP_S, f"warm {task.name}")
        place.tasks.append(task.revision)

    await asyncio.gather(
        *(ask(place, *first) for place in evaluator.places for first in firsts.values())
    )


async def judge(evaluator: PooledEvaluator, asked: Sequence[tuple[Task, str]], mark: str) -> Round:
    """All of them, as many at once as the evaluator has slots."""
    waiting, verdicts, each_s = iter(enumerate(asked)), [], []

    async def ask() -> None:
        for number, (task, source) in waiting:
            request = EvaluationRequest(
                task=task, instance=f"{mark} {number}", source=source, fidelity=Fidelity.SEARCH
            )
            began = time.monotonic()
            verdicts.append(await evaluator.evaluate(request))
            each_s.append(time.monotonic() - began)

    began = time.monotonic()
    await asyncio.gather(*(ask() for _ in range(evaluator.slots)))
    return Round(time.monotonic() - began, verdicts, each_s)


def tell(side: str, gpus: int, done: Round) -> None:
    statuses = Counter(str(verdict.status) for verdict in done.verdicts)
    places = sorted(Counter(v.environment.get("judge", "") for v in done.verdicts).values())
    widths = [v.ratios["eager"].half_width for v in done.verdicts if "eager" in v.ratios]
    width = f", half-width {statistics.median(widths):.2%}" if widths else ""
    print(
        f"{gpus} GPUs, {side:<11} {done.a_minute:6.1f} a minute: {len(done.verdicts)} in "
        f"{done.seconds:.1f} s, {dict(statuses)}, by judge {places}, each "
        f"{statistics.median(done.each_s):.1f} s, exclusive "
        f"{sum(v.device_time_s for v in done.verdicts) / done.seconds / gpus:.0%}{width}",
        flush=True,
    )
    for text in {v.feedback[:200] for v in done.verdicts if v.status != "correct"}:
        print(f"    {text}")


async def compare(options: argparse.Namespace, gpus: int, address: str, end: float) -> None:
    """Rounds in turns until the next pair, from the second, would end too late; their rates."""
    began = time.monotonic()
    rounds: dict[str, list[Round]] = {side: [] for side in SIDES}
    async with sides(options, gpus, address) as evaluators:
        up_s = time.monotonic() - began
        first = candidates(options, gpus, "warm")
        if not options.stub:
            await asyncio.gather(*(warm(each, first) for each in evaluators.values()))
        print(
            f"{gpus} GPUs: judges up after {up_s:.0f} s, warm after {time.monotonic() - began:.0f}",
            flush=True,
        )
        pair_s = 0.0
        while not pair_s or time.monotonic() + pair_s < end:
            pair_began, turn = time.monotonic(), len(rounds[SIDES[0]])
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                mark = f"{side.replace(' ', '-')} {turn}"
                asked = candidates(options, gpus, mark)
                rounds[side].append(await judge(evaluators[side], asked, mark))
                tell(side, gpus, rounds[side][-1])
            pair_s = time.monotonic() - pair_began
    local, far = (
        60 * sum(len(one.verdicts) for one in done) / sum(one.seconds for one in done)
        for done in rounds.values()
    )
    ratios = [b.a_minute / a.a_minute for a, b in zip(*rounds.values(), strict=True)]
    print(
        f"{gpus} GPUs: local pool {local:.1f} a minute, through Ray {far:.1f}, ratio "
        f"{far / local:.3f} in {len(ratios)} pairs of {len(first)} "
        f"({', '.join(f'{ratio:.3f}' for ratio in ratios)})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", default="1,2,4", help="numbers of GPUs")
    parser.add_argument("--within", type=float, default=480, help="seconds, for all of them")
    parser.add_argument("--each", type=int, default=16, help="candidates of a round, for each GPU")
    parser.add_argument("--at-once", type=int, default=8, help="for each judge")
    parser.add_argument("--tasks", default="relu2,softmax,layernorm,product", help="by comma")
    parser.add_argument("--device", default="cuda", help="cpu, to try this program out")
    parser.add_argument("--stub", type=float, default=0, help="seconds of a stub in its place")
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "(?s).*"}
    from ray.cluster_utils import Cluster

    print_conditions()
    sizes = [int(word) for word in options.gpus.split(",")]
    last = time.monotonic() + options.within
    for position, gpus in enumerate(sizes):
        now = time.monotonic()
        end = now + (last - now) / (len(sizes) - position)
        node = {"num_cpus": int(options.device == "cpu"), "num_gpus": gpus}
        node["include_dashboard"] = False
        node["object_store_memory"] = OBJECTS_BYTES
        cluster = Cluster(initialize_head=True, head_node_args=node)
        try:
            asyncio.run(compare(options, gpus, cluster.address, end))
        finally:
            cluster.shutdown()
    print_conditions()


if __name__ == "__main__":
    main()
