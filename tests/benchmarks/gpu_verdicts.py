"""Right candidates of ten tasks from 0.05 to 3 ms, several at once: verdicts a minute."""

import argparse
import gzip
import json
import random
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from evolve.core.evaluation import Evaluation
from evolve.core.task import Task
from tests.benchmarks import gpu_candidates as of
from tests.worker.serving import Worker

_CASES = {
    "relu2": ("torch.relu(x) * 2 + x", of.RELU2, "x", "4096, 4096"),
    "gelu": ("torch.nn.functional.gelu(x)", of.GELU, "x", "8192, 4096"),
    "mish": ("torch.nn.functional.mish(x)", of.MISH, "x", "16384, 8192"),
    "mish-large": ("torch.nn.functional.mish(x)", of.MISH, "x", "16384, 16384"),
    "softmax": ("torch.softmax(x, dim=1)", of.SOFTMAX, "x", "8192, 4096"),
    "softmax-long": ("torch.softmax(x, dim=1)", of.SOFTMAX, "x", "4096, 16384"),
    "layernorm": ("self.ln(x)", of.LAYERNORM, "x", "4096, 4096"),
    "product-small": ("A @ B", of.PRODUCT, "A, B", "1024, 1024"),
    "product": ("A @ B", of.PRODUCT, "A, B", "2048, 2048"),
    "scaled-rows": ("A[:, None] * B", of.SCALED_ROWS, "A, B", "8192, 8192"),
}


def task_named(name: str) -> Task:
    forward, _, arguments, shape = _CASES[name]
    made = [f"torch.randn({shape})" for _ in arguments.split(", ")]
    if name == "scaled-rows":
        made[0] = f"torch.randn({shape.split(', ')[0]})"
    norm = f"self.ln = nn.LayerNorm({shape.split(', ')[1]})" if name == "layernorm" else "pass"
    return Task(
        name=name,
        size="gpu",
        source=f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {norm}

    def forward(self, {arguments}):
        return {forward}

def get_inputs():
    return [{", ".join(made)}]

def get_init_inputs():
    return []
""",
    )


def requests(each: int, names: Sequence[str] = ()) -> list[tuple[Task, str]]:
    """So many right candidates (5 at most) of each task, in random order."""
    found = []
    for name in names or _CASES:
        task = task_named(name)
        sources = of.right_ones(_CASES[name][1], task.source)[:each]
        found += [(task, source) for source in sources]
    random.Random(0).shuffle(found)
    return found


def verdicts(workers: Sequence[Worker], options: argparse.Namespace) -> None:
    """All of them by these judges, `at_once` each; a line for each, and what they come to."""
    each = max(1, options.candidates // len(_CASES))
    names = [name for name in options.tasks.split(",") if name]
    asked = requests(each, names)
    with ThreadPoolExecutor(options.at_once * len(workers)) as pool:
        # Tasks are loaded, and references measured, beforehand.
        firsts = [(worker, *one) for worker in workers for one in requests(1, names)]
        for first in [pool.submit(_judge, [worker], options, task, source + "\n# first\n")
                      for worker, task, source in firsts]:  # fmt: skip
            first.result()
        start = time.monotonic()
        free = list(workers) * options.at_once
        futures = [pool.submit(_judge, free, options, *one) for one in asked]
        rows = [future.result() for future in futures]
    seconds = time.monotonic() - start
    _report(rows, seconds, len(workers))
    if options.raw:
        with gzip.open(options.raw, "at") as file:
            for task, _, verdict, took in rows:
                line = {"task": task.name, "seconds": took, "verdict": verdict.to_json()}
                file.write(json.dumps(line) + "\n")


_SENDING = threading.Lock()
Row = tuple[Task, str, Evaluation, float]


def _judge(free: list[Worker], options: argparse.Namespace, task: Task, source: str) -> Row:
    worker = free.pop()
    start = time.monotonic()
    try:
        with _SENDING:
            sent = worker.send(
                "evaluate", task=task.to_json(), source=source, fidelity=options.fidelity
            )
        verdict = Evaluation.from_json(sent.result(options.seconds)["result"])
    finally:
        free.append(worker)
    took = time.monotonic() - start
    ratio = verdict.ratios.get("eager")
    told = f"{ratio.value:.3f} +-{ratio.half_width:.2%}" if ratio else verdict.feedback[:120]
    pairs = [len(s["ms"]["eager"]) for s in verdict.samples.values() if "ms" in s]
    labels = [label.name for label in verdict.labels if label.name != "kernels"]
    print(f"{task.name:14} {verdict.status} {verdict.custom} {told} pairs {pairs} {took:.1f} s, "
          f"exclusive {verdict.device_time_s:.2f} s {labels}", flush=True)  # fmt: skip
    return task, source, verdict, took


def _report(rows: Sequence[Row], seconds: float, judges: int) -> None:
    right = [verdict for _, _, verdict, _ in rows if "eager" in verdict.ratios]
    widths = sorted(verdict.ratios["eager"].half_width for verdict in right)
    exclusive = sorted(verdict.device_time_s for verdict in right)
    if not right:
        return
    print(
        f"{len(rows)} verdicts ({len(right)} right) in {seconds:.1f} s by {judges} judges: "
        f"{60 * len(rows) / seconds:.1f} a minute; exclusive {statistics.median(exclusive):.2f} s "
        f"in the median, {exclusive[-1]:.2f} at most, {sum(exclusive) / seconds / judges:.0%} of "
        f"the time; half-width {statistics.median(widths):.2%} in the median, "
        f"{widths[int(0.9 * len(widths))]:.2%} at the 90th percentile"
    )
    stages: dict[str, list[float]] = {}
    for verdict in right:
        for stage, took in verdict.durations_s.items():
            stages.setdefault(stage, []).append(took)
    for stage, times in stages.items():
        print(
            f"  {stage}: {statistics.median(times):.2f} s in the median, {max(times):.2f} at most"
        )
