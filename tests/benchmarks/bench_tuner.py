"""The tuner against every instance of shipped templates, timed once and kept in a table.

    python -m tests.benchmarks.bench_tuner measure TABLE.json --seconds 230
    python -m tests.benchmarks.bench_tuner replay TABLE.json

`measure` takes templates in Triton where there is a CUDA device, and seeds in C++ elsewhere. It
compiles in as many processes as there are cores and room for, then times one instance after the
other, alone; what there was no time for is left out.
`replay` runs the tuner on the table, on any machine. An evaluation is any measurement that it asks
for, a screen or a full one, of an instance that it saw before too; the gap is how much slower than
the best of the table the one is that it would keep. Where a space is too large for a table, choices
are left out, and both say how much of it the table is.
"""

import argparse
import ast
import importlib.util
import json
import linecache
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.benchmark import Timer
from triton.errors import TritonError
from triton.testing import do_bench

from evolve.core import tunables
from evolve.core.compiled import Compiled
from evolve.core.program import Assignment, TunableValue
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.worker.compiler import compile_model, settings
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.taskmodule import execute
from operators.inductor import convert
from operators.templates import Products
from operators.templates.matmul import How
from operators.tune import Tune
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.tuner_replay import Run, Table

MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {state}

    def forward(self, {names}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def module(result: str, *shapes: tuple[int, ...], state: str = "pass") -> str:
    """A task's source: what is returned, of inputs `a`, `b`, ... of these shapes."""
    names = ", ".join("abc"[: len(shapes)])
    inputs = ", ".join(f"torch.randn{shape}" for shape in shapes)
    return MODULE.format(result=result, names=names, inputs=inputs, state=state)


@dataclass(frozen=True)
class Problem:
    """A program to tune.

    Attributes:
        task: its source, or the name of a shipped task at size gpu.
        variant: of the compiler.
        only: choices of some tunables, by the end of their names; the others keep all of theirs.
        how: its products are computed (`Products`).
        seed: of the shipped task, instead of what the compiler makes.
    """

    task: str
    variant: str = ""
    only: Mapping[str, tuple[TunableValue, ...]] = field(default_factory=dict)
    how: How = ""
    seed: str = ""


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TASKS = Path(__file__).parents[2] / "examples" / "tasks"
_PASSES = 3  # over all instances, on a CPU, which others may use too: the fastest counts
_ROOM_OF_ONE = 6 << 30  # of the device, for a process with the inputs and outputs of a problem
SIDES = {"BLOCK_M": (64, 128, 256), "BLOCK_N": (32, 64, 128, 256)}
FIXED = {"GROUP_M": (8,), "INPUT_PRECISION": ("tf32x3", "bf16x6")}
IMAGES = (32, 64, 56, 56)
HEADS = (4, 16, 1024, 64)
SDPA = "torch.nn.functional.scaled_dot_product_attention(a, b, c)"
_ON_A_GPU = {
    "matmul": Problem(module("a @ b", (2048, 2048), (2048, 2048)), "default", FIXED | SIDES),
    "split": Problem(
        module("a @ b", (128, 16384), (16384, 128)),
        "default",
        FIXED
        | {"BLOCK_M": (32, 64, 128), "BLOCK_N": (32, 64, 128), "BLOCK_K": (32, 64)}
        | {"PARTS": (8, 32, 64), "SPLIT_BLOCK": (256,)}
        | {"INPUT_PRECISION": ("bf16x6",), "NUM_WARPS": (4,), "NUM_STAGES": (2, 3)},
    ),
    "matvec": Problem(module("a @ b", (8192, 8192), (8192, 1)), "default"),
    "convolution": Problem(
        module("self.conv(a)", IMAGES, state="self.conv = nn.Conv2d(64, 128, 3, padding=1)"),
        "same_layout",
        FIXED | SIDES,
    ),
    "depthwise": Problem(
        module("self.conv(a)", IMAGES, state="self.conv = nn.Conv2d(64, 64, 3, groups=64)"),
        "same_layout",
    ),
    "pool": Problem(module("nn.functional.avg_pool2d(a, 11)", IMAGES), "default"),
    "attention": Problem(
        module(SDPA, HEADS, HEADS, HEADS), "default", {"INPUT_PRECISION": ("bf16x6",)}
    ),
    "cumsum": Problem("cumsum", "default"),
    "softmax": Problem("softmax", "looped"),
    "layernorm": Problem("layernorm", "looped"),
    "layernorm_whole": Problem("layernorm", "whole"),
    "norm_parts": Problem(
        module("a / torch.norm(a, p='fro')", (4096, 16384)),
        "whole",
        {"PARTS": (64, 256, 1024), "NUM_STAGES": (2, 3)},
    ),
    "scan_whole": Problem("cumsum", "whole", {"NUM_STAGES": (1, 2)}),
    "loss_whole": Problem(
        module("nn.functional.mse_loss(a, b)", *[(8192, 16384)] * 2),
        "whole",
        {"PARTS": (256, 1024, 4096)},
    ),
    "even": Problem(
        module("a @ b", (2048, 2048), (2048, 2048)), "default", FIXED | SIDES, how="even"
    ),
    "packed": Problem(
        module("a @ b", (2048, 2048), (2048, 2048)),
        "default",
        {"GROUP_M": (8,)} | SIDES,
        how="packed",
    ),
}
_ON_A_CPU = {
    f"{task}_{seed}": Problem(task, seed=seed)
    for task, seed in (
        ("matmul", "row_blocks"),
        ("matmul", "column_panels"),
        ("attention", "online"),
        ("layernorm", "blocks"),
        ("softmax", "three_pass"),
        ("rmsnorm", "two_pass"),
    )
}
PROBLEMS = _ON_A_GPU if DEVICE == "cuda" else _ON_A_CPU
"""Spaces are kept small enough for a few minutes; those without a third argument are whole."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("measure", "replay"))
    parser.add_argument("table", type=Path)
    parser.add_argument("--seconds", type=float, default=230, help="of measure, at most")
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=10, help="of replay")
    options = parser.parse_args()
    print_conditions()
    if options.part == "measure":
        measure(options.table, options.problems.split(","), options.seconds)
    else:
        replay(options.table, range(options.seeds))


# --- the table ------------------------------------------------------------------------------------


def measure(table: Path, names: Sequence[str], seconds: float) -> None:
    """Write the times of all instances; what there is no time for has none."""
    ends = time.monotonic() + seconds
    sources = {name: program(PROBLEMS[name]) for name in names}
    work = [(name, one) for name in names for one in instances(sources[name], PROBLEMS[name])]
    random.Random(0).shuffle(work)  # what is left out is left out of all problems
    # But never what a replay begins with.
    work.sort(key=lambda one: one[1] != tunables.parse(sources[one[0]]).defaults)
    for name in names:
        count = sum(problem == name for problem, _ in work)
        print(f"{name}: {count} of {tunables.parse(sources[name]).size} instances", flush=True)
    rows = list(compiled(work, sources, ends - 0.45 * seconds))
    print(f"{len(rows)} compiled, {ends - time.monotonic():.0f} s left", flush=True)
    for row in rows:
        row["time_ms"] = None
    for _ in range(1 if DEVICE == "cuda" else _PASSES):
        for row in rows:
            if isinstance(row["error"], float) and time.monotonic() < ends:
                taken = timed(row["problem"], sources[row["problem"]], row["assignment"])
                row["time_ms"] = min(row["time_ms"] or taken, taken)
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else CpuDevice().device_class
    found = {"device": device, "sources": sources, "rows": rows}
    table.write_text(json.dumps(found))
    for name in names:
        times = [row["time_ms"] for row in rows if row["problem"] == name and row["time_ms"]]
        reference = milliseconds(Scene(name).reference)
        best = f"{min(times):.4f}" if times else "no"
        print(f"{name}: {len(times)} times, best {best} ms, torch {reference:.4f} ms")


def program(problem: Problem) -> str:
    """The source that is tuned."""
    task = task_of(problem)
    if problem.seed:
        return (TASKS / problem.task / "seeds" / f"{problem.seed}.py").read_text()
    module = execute(task.name, task.source, {})
    model, inputs = made(module)
    case = compile_model(model, inputs, settings(problem.variant))
    version = torch.__version__.partition("+")[0]
    products = Products(fused=True, how=problem.how)
    return convert(task.source, task.name, Compiled(problem.variant, version, (case,)), products)


def task_of(problem: Problem) -> Task:
    if problem.task.isidentifier():
        size = "gpu" if DEVICE == "cuda" else "cpu"
        task = find_task(problem.task, size=size)
        constants = "\n".join(f"{k} = {v!r}" for k, v in sizes(task.source)[size].items())
        return replace(task, source=f"{task.source}\n{constants}\n")
    return Task(name="t", source=problem.task)


def sizes(source: str) -> dict[str, dict[str, Any]]:
    """What a task's file says under SIZES."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SIZES":
            return dict(ast.literal_eval(node.value))
    return {"gpu": {}, "cpu": {}}


def made(module: ModuleType) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    with torch.device(DEVICE):
        return module.Model(*module.get_init_inputs()).eval(), module.get_inputs()


def instances(source: str, problem: Problem) -> Iterator[Assignment]:
    """All assignments, of the choices that the problem leaves."""
    space = tunables.parse(source)
    for assignment in space.assignments():
        allowed = (
            value in choices
            for name, value in assignment.items()
            for ending, choices in problem.only.items()
            if name.endswith(ending)
        )
        if all(allowed):
            yield assignment


class Scene:
    """A problem's reference, its inputs and what it gives for them, on the device."""

    def __init__(self, name: str) -> None:
        task = task_of(PROBLEMS[name])
        module = execute(task.name, task.source, {})
        self._arguments = module.get_init_inputs()
        self._model, self._inputs = made(module)
        with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
            self.expected = self.reference()

    def reference(self) -> torch.Tensor:
        with torch.no_grad():
            return self._model(*self._inputs)

    def candidate(self, source: str) -> Callable[[], torch.Tensor]:
        """What an instance gives for the same inputs, with the same weights."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(source)
            file.flush()
            spec = importlib.util.spec_from_file_location("candidate", file.name)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            linecache.getlines(file.name)  # Triton reads a kernel's text when it is launched
            model = module.ModelNew(*self._arguments).eval().to(DEVICE)
            model.load_state_dict(self._model.state_dict())
            with torch.no_grad():
                model(*self._inputs)
        return lambda: model(*self._inputs)


@lru_cache
def scene(name: str) -> Scene:
    return Scene(name)


def compiled(
    work: Sequence[tuple[str, Assignment]], sources: Mapping[str, str], ends: float
) -> Iterator[dict[str, Any]]:
    """Compile instances in processes of their own; how far each is off, or why it cannot run."""
    context = multiprocessing.get_context("spawn")
    count = len(os.sched_getaffinity(0))
    if DEVICE == "cuda":
        count = max(1, min(count, torch.cuda.mem_get_info()[0] // _ROOM_OF_ONE))
    with ProcessPoolExecutor(count, mp_context=context, initializer=prepare) as pool:
        futures = [
            pool.submit(checked, name, sources[name], assignment) for name, assignment in work
        ]
        waiting = iter(futures)
        with suppress(BrokenProcessPool):  # a kernel that takes its process with it ends the table
            for future in waiting:
                if time.monotonic() > ends:
                    pool.shutdown(wait=True, cancel_futures=True)
                    break
                yield future.result()
            for future in waiting:
                if future.done() and not future.cancelled():
                    yield future.result()


def prepare() -> None:
    torch.set_num_threads(1)


def checked(name: str, source: str, assignment: Assignment) -> dict[str, Any]:
    found: dict[str, Any] = {"problem": name, "assignment": dict(assignment)}
    try:
        known = scene(name)
        value = known.candidate(tunables.render(source, assignment))()
        off = (value - known.expected).abs().max() / known.expected.abs().max()
        found["error"] = float(off)
    except (TritonError, RuntimeError) as error:
        found["error"] = f"{type(error).__name__}: {error}"[:200]
    return found


def timed(name: str, source: str, assignment: Assignment) -> float:
    with torch.no_grad():
        return milliseconds(scene(name).candidate(tunables.render(source, assignment)))


def milliseconds(work: Callable[[], object]) -> float:
    """The median of runs that together take 20 ms; on a GPU with a cold L2 cache."""
    if DEVICE == "cuda":
        return float(do_bench(work, warmup=4, rep=20, return_mode="median"))
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    return timer.adaptive_autorange(min_run_time=0.02, max_run_time=0.1).median * 1e3


# --- the tuner against it -------------------------------------------------------------------------


def replay(path: Path, seeds: Sequence[int]) -> None:
    """Print, for each program, how close the tuner comes with a tenth of all evaluations."""
    found = json.loads(path.read_text())
    print(f"{found['device']}: gaps after a tenth of the evaluations, {len(seeds)} runs each")
    for name, source in found["sources"].items():
        rows = [row for row in found["rows"] if row["problem"] == name]
        table = Table.read(rows, source)
        budget = len(table.times) // 10
        runs = [run(table, seed, budget) for seed in seeds]
        gaps = sorted(one.gap for one in runs)
        full = statistics.median(len(one.measured) for one in runs)
        print(
            f"{name}: {len(table.times)} of {tunables.parse(source).size} instances, "
            f"{budget} evaluations of which {full:.0f} in full, "
            f"gap {statistics.median(gaps):.1%} ({gaps[0]:.1%} to {gaps[-1]:.1%}); as written "
            f"{table.time(table.written) / table.best - 1:.1%}"
        )


def run(table: Table, seed: int, budget: int) -> Run:
    """So many evaluations, or as many as the tuner asks for."""
    one, operator = Run(table, seed), Tune()
    while one.evaluations < budget and one.step(operator):
        pass
    return one


if __name__ == "__main__":
    main()
