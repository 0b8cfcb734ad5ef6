"""Programs for `bench_tuner` to tune, and which instances of each its table has."""

import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from evolve.core.compiled import Compiled
from evolve.core.program import Assignment, TunableValue
from evolve.core.source import tunables
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.worker.build.inductor import compile_model, settings
from evolve.worker.reference.task_files import folder_of
from evolve.worker.reference.task_module import execute
from operators.local.inductor import convert
from operators.local.templates import How, Products
from operators.local.tuning import Limits, fits
from tests.benchmarks.tuner_replay import Table

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
    how: How = How.PLAIN
    seed: str = ""


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TASKS = Path(__file__).parents[2] / "examples" / "tasks"
SIDES = {"BLOCK_M": (64, 128, 256), "BLOCK_N": (32, 64, 128, 256)}
FIXED = {"GROUP_M": (8,), "INPUT_PRECISION": ("bf16x6",)}
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
        | {"NUM_WARPS": (4,), "NUM_STAGES": (2, 3)},
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
        module(SDPA, HEADS, HEADS, HEADS),
        "default",
        FIXED | {"BLOCK_M": (32, 64, 128), "BLOCK_K": (32, 64)},
    ),
    "cumsum": Problem("cumsum", "default"),
    "softmax": Problem("softmax", "looped"),
    "layernorm": Problem("layernorm", "looped"),
    "layernorm_whole": Problem("layernorm", "whole"),
    "norm_parts": Problem(
        module("a / torch.norm(a, p='fro')", (4096, 16384)),
        "whole",
        {"PARTS": (64, 256, 1024), "NUM_STAGES": (2,), "BLOCK_K": (512, 2048, 8192)},
    ),
    "scan_whole": Problem("cumsum", "whole", {"NUM_STAGES": (1, 2), "BLOCK_K": (512, 1024, 2048)}),
    "loss_whole": Problem(
        module("nn.functional.mse_loss(a, b)", *[(8192, 16384)] * 2),
        "whole",
        {"PARTS": (256, 1024, 4096), "BLOCK": (512, 2048, 8192)},
    ),
    "packed": Problem(
        module("a @ b", (2048, 2048), (2048, 2048)),
        "default",
        {"GROUP_M": (8,)} | SIDES,
        how=How.PACKED,
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
"""Spaces are kept to some 2000 instances in all; those without a third argument are whole."""


def program(problem: Problem) -> str:
    """The source that is tuned."""
    task = task_of(problem)
    if problem.seed:
        return (TASKS / problem.task / "seeds" / f"{problem.seed}.py").read_text()
    module = execute(task.name, task.source, {}, folder_of(task))
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


def planned(source: str, problem: Problem) -> list[Assignment]:
    """Instances of the choices that the problem leaves: what a replay begins with, then by chance.

    So what there is no time for is left out anywhere in the space; but last come those that the
    tuner does not ask for since they cannot fit a device, for compilers take minutes for some.
    """
    found = list(_instances(source, problem))
    random.Random(0).shuffle(found)
    rows = [{"assignment": assignment, "time_ms": None} for assignment in found]
    first, limits = Table.read(rows, source).written, Limits()
    return sorted(found, key=lambda one: (one != first, not fits(source, one, limits)))


def _instances(source: str, problem: Problem) -> Iterator[Assignment]:
    space = tunables.parse(source)
    for values in product(*(_left(tunable, problem) for tunable in space)):
        yield dict(zip((tunable.name for tunable in space), values, strict=True))


def _left(tunable: tunables.Tunable, problem: Problem) -> list[TunableValue]:
    """Choices of a tunable that the problem leaves."""
    endings = [only for name, only in problem.only.items() if tunable.name.endswith(name)]
    return [choice for choice in tunable.choices if all(choice in only for only in endings)]
