"""How fast the seeds of a KernelBench level are: by CUDA events, without the judge.

    export KERNELBENCH_PATH=KernelBench
    python -m tests.benchmarks.gpu_kinds 2 --problems 1-40 --seconds 120

A quick look, half a second for a program: which kind is fast where, and which kernels take the time
(`--profile`). Problems run in processes of their own, forked from one that has imported the
compiler; kernels are compiled side by side, and what works on the GPU does so alone, under a lock.
Inputs are not hidden, one outcome is compared with the reference's, and the cache is as warm as the
sizes leave it: figures that count come from `evolve bench`.
"""

import argparse
import fcntl
import json
import math
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else nobody could be forked

import torch
import torch._inductor.codegen.triton
import torch._inductor.lowering
from triton.errors import TritonError
from triton.runtime.jit import JITFunction

from evolve.core.compiled import Compiled
from evolve.core.errors import UsageError
from evolve.core.protocols import Proposal
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.tasks.kernelbench import list_problems
from evolve.worker import compiler
from evolve.worker.expected import evaluate_truth
from evolve.worker.rounding import are_exact
from evolve.worker.trees import flatten
from operators.compiler_seed import CompilerSeed
from operators.template_seed import TemplateSeed
from tests.benchmarks.conditions import print_conditions
from tests.operators.inductor_running import imported
from tests.operators.proposing import proposals

PROCESSES = 14
MILLISECONDS = 80.0  # of timing for each program
VENDORS = re.compile(r"\btorch\.(mm|addmm|bmm|baddbmm|convolution|ops)\b")
OPERATORS = (CompilerSeed(["default"]), TemplateSeed(["default", "same_layout"]))


class Compiling:
    """Kernels are compiled and not launched."""

    def __enter__(self) -> None:
        self._run = run = JITFunction.run
        JITFunction.run = lambda *given, **named: run(*given, **named | {"warmup": True})

    def __exit__(self, *_: object) -> None:
        JITFunction.run = self._run


def rounding(model: torch.nn.Module, inputs: list[Any], expected: Any) -> str:
    """What eager's convolutions make of float32, as `operators.template_seed` has to know."""
    if not torch.backends.cudnn.allow_tf32:
        return "ieee"
    outcomes = flatten(expected)[0]
    truth = evaluate_truth(model, inputs, outcomes).outputs
    return "ieee" if are_exact(outcomes, truth) else "tf32"


def programs(task: Task, rounds: str) -> Iterator[Proposal]:
    """Seeds of the compiler and of the template library, in their order."""
    device = {"eager_convolutions": rounds}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        device["arch"] = f"{properties.major}{properties.minor}"
        device["multiprocessors"] = str(properties.multi_processor_count)
    for operator in OPERATORS:
        for found in proposals(operator, task, **device):
            if isinstance(found, Proposal):
                yield found


def compiled(model: torch.nn.Module, inputs: Sequence[Any]) -> tuple[Compiled, ...]:
    """What the compiler makes of a reference, by those of the variants that differ."""
    found = {}
    for variant in ("default", "same_layout"):
        with suppress(UsageError):
            case = compiler.compile_model(model, inputs, compiler.settings(variant))
            found.setdefault(case.code, Compiled(variant, torch.__version__, (case,)))
    return tuple(found.values())


def milliseconds(call: Callable[[], object]) -> float:
    """The median of some calls, one event after the other."""
    call()
    return median(call, max(3, min(15, int(MILLISECONDS / max(median(call, 2), 1e-3)))))


def median(call: Callable[[], object], count: int) -> float:
    """Of the milliseconds of calls; by the host's clock where there is no GPU."""
    if not torch.cuda.is_available():
        times = [time.perf_counter()]
        for _ in range(count):
            call()
            times.append(time.perf_counter())
        return statistics.median(1000 * (end - start) for start, end in pairwise(times))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(one.elapsed_time(other) for one, other in pairwise(events))


def kernels(call: Callable[[], object]) -> dict[str, int]:
    """Microseconds by kernel, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    return {event.key[:60]: round(event.self_device_time_total) for event in events[:6]}


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def measured(call: Callable[[], object], profile: bool) -> dict[str, object]:
    """Milliseconds, and the time of kernels where that is wanted."""
    return {"ms": milliseconds(call)} | ({"kernels": kernels(call)} if profile else {})


def look(name: str, answers: Path, options: argparse.Namespace) -> None:
    """Notes a line for the reference and one for each program of it."""

    def note(**about: object) -> None:
        with answers.open("a") as file:
            file.write(json.dumps({"task": name} | about) + "\n")

    task = find_task(f"kernelbench:{name}", size="gpu")
    module: dict[str, Any] = {}
    exec(task.source, module)
    lock = answers.with_suffix(".lock")
    with torch.no_grad(), torch.device(options.device):
        arguments = module["get_init_inputs"]()
        torch.manual_seed(0)
        model, inputs = module["Model"](*arguments).eval(), module["get_inputs"]()
        with alone(lock):
            expected = model(*inputs)
            note(kind="eager", **measured(partial(model, *inputs), options.profile))
        made = compiled(model, inputs)
        rounds = rounding(model, inputs, expected)
        for each in programs(Task(name=task.name, source=task.source, compiled=made), rounds):
            own = not VENDORS.search(each.program.source)
            try:
                candidate = imported(each.program.source).ModelNew(*arguments).eval()
                candidate.load_state_dict(model.state_dict())
                call = partial(candidate, *inputs)
                with Compiling():
                    call()
                with alone(lock):
                    off = difference(call(), expected)
                    note(kind=each.note, own=own, off=off, **measured(call, options.profile))
            except (TritonError, RuntimeError, AssertionError) as error:
                note(kind=each.note, own=own, error=repr(error)[:300])
            candidate = call = None
            torch.cuda.empty_cache()


def difference(found: Any, expected: Any) -> float:
    """Relative to the largest expected value; of the first tensor of each."""
    while isinstance(expected, (tuple, list)):
        found, expected = found[0], expected[0]
    largest = expected.double().abs().max().clamp(min=1e-30)
    return float((found.double() - expected.double()).abs().max() / largest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("level", type=int)
    parser.add_argument("--problems", default="1-100", help="numbers and ranges, by comma")
    parser.add_argument("--seconds", type=float, default=120, help="for all")
    parser.add_argument("--profile", action="store_true", help="time of each kernel as well")
    parser.add_argument("--device", default="cuda", help="cpu, to try this program out")
    parser.add_argument("--out", type=Path, help="of the lines of JSON")
    options = parser.parse_args()
    print_conditions()
    ranges = [part.partition("-") for part in options.problems.split(",")]
    numbers = {n for a, _, b in ranges for n in range(int(a), int(b or a) + 1)}
    answers = options.out or Path(tempfile.mkdtemp()) / "kinds.jsonl"
    known = [number for level, number, _ in list_problems() if level == options.level]
    left = [f"{options.level}/{number}" for number in known if number in numbers]
    until, live = time.monotonic() + options.seconds, list[BaseProcess]()
    while (left or live) and time.monotonic() < until:
        live = [process for process in live if process.is_alive()]
        while left and len(live) < PROCESSES:
            process = get_context("fork").Process(target=look, args=(left.pop(0), answers, options))
            process.start()
            live.append(process)
        time.sleep(0.1)
    for process in live:
        process.kill()
    summarise([json.loads(line) for line in answers.read_text().splitlines()])


def summarise(rows: Sequence[Mapping[str, Any]]) -> None:
    """A line for each task, and means of the best programs."""
    eager = {row["task"]: row["ms"] for row in rows if row["kind"] == "eager"}
    best: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for task, ms in eager.items():
        own = [row for row in rows if row["task"] == task and row["kind"] != "eager"]
        shown = [f"{ms:.3f} ms"]
        for row in own:
            if "error" in row:
                shown.append(f"{row['kind']}: {row['error']}")
                continue
            shown.append(f"{row['kind'].removeprefix('variant ')}: {ms / row['ms']:.2f}")
            for only in (True, False):
                if row["own"] or not only:
                    best[only][task] = max(best[only].get(task, 0.0), ms / row["ms"])
        print(f"{task} | {' | '.join(shown)}")
    for only, found in best.items():
        if found:
            mean = math.exp(sum(map(math.log, found.values())) / len(found))
            faster = sum(speed > 1 for speed in found.values())
            print(
                f"{'own kernels only' if only else 'with vendor calls'}: {len(found)} of "
                f"{len(eager)} tasks, geometric mean {mean:.2f} times as fast as eager, "
                f"{faster} faster"
            )


if __name__ == "__main__":
    main()
