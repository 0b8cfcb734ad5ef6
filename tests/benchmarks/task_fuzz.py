"""Generated task modules through the judge: dtypes, layouts, trees and shapes, and odd values.

    python -m tests.benchmarks.task_fuzz --tasks 500 --seed 11

Every module is loaded and audited. Counts go to
`tests/benchmarks/results/task_fuzz.md`. A module is sound, weak, or refused in one sentence that
names it; anything else is a fault of the judge, and is listed.
"""

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.judge.audit import audit, conditions_of

RESULTS = Path(__file__).parent / "results" / "task_fuzz.md"
DTYPES = [
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e8m0fnu", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool",
    "complex64", "complex128",
]  # fmt: skip
SHAPES = [
    "()", "(1,)", "(0,)", "(7,)", "(64,)", "(3, 5)", "(8, 16)", "(0, 4)", "(2, 3, 4)",
    "(1, 1, 33)", "(4, 0, 2)", "(2, 2, 2, 9)",
]  # fmt: skip
LAYOUTS = [
    "{x}", "{x}", "{x}", "{x}.T if {x}.dim() == 2 else {x}",
    "{x}.unsqueeze(0).expand(3, *{x}.shape)", "{x}.to_sparse()",
    "{x}.to_sparse_csr() if {x}.dim() == 2 else {x}", "{x}[..., ::2] if {x}.dim() else {x}",
    "torch.nested.nested_tensor([{x}, {x}])",
    "torch.nn.Parameter({x}) if {x}.is_floating_point() else {x}",
    "torch.quantize_per_tensor({x}.float(), 0.1, 0, torch.qint8)",
    "{x}.conj() if {x}.is_complex() else {x}", "{x}.to('meta')",
    "torch.view_as_real({x}).neg() if {x}.is_complex() else {x}",
]  # fmt: skip
TREES = [
    "{a}", "({a}, {b})", "[{a}, [{b}]]", "{{'one': {a}, 'two': ({b}, None)}}",
    "(({a},), {{1: {b}}})", "({a}, 3)", "None", "({a}, '{b}')", "{{'a': None, 'b': {a}}}", "[]",
]  # fmt: skip
BODIES = [
    "x * 2", "x.sum()", "x.float()", "(x + 1).clone()", "x", "x.add_(1)", "x.reshape(-1)[:1]",
    "torch.relu(x)", "x.sort(-1)[1] if x.dim() else x", "x.argmax()", "torch.round(x * 3)",
    "x != x", "x.abs()", "x.to(torch.float8_e4m3fn)", "torch.softmax(x, -1)",
    "x.float().to(torch.bfloat16)", "x.cumsum(-1)", "x.to_dense() * 1", "x / 0",
    "x * float('nan')", "torch.randn(4)", "torch.empty(3, 0)", "x.new_zeros(())",
    "x.to(torch.complex64)", "x.float().log()",
    "torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8)", "x.to_sparse()",
    "torch.view_as_real(x)", "x.nonzero()", "x.float().int()", "x.view(torch.uint8)", "x.unique()",
    "x.T if x.dim() == 2 else x", "x[..., ::2] if x.dim() else x", "self.lazy(x.float())",
    "torch.arange(5)", "x.double().clamp(-1, 1)", "torch.fft.fft(x.float())", "x.mean()",
    "x.conj()",
]  # fmt: skip


def module(rng: random.Random) -> str:
    """The text of a task."""
    dtype, shape, layout = rng.choice(DTYPES), rng.choice(SHAPES), rng.choice(LAYOUTS)
    tree = rng.choice(TREES) if rng.random() < 0.5 else "{a}"
    one, two = rng.choice(BODIES), rng.choice(BODIES)
    extra = rng.choice(["", "", ", 3", ", None", ", 'sum'", ", torch.float16", ", [x, {'k': x}]"])
    return f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lazy = nn.LazyLinear(3) if {"lazy" in one or "lazy" in two} else None

    def forward(self, x, *others):
        return {tree.format(a=f"({one})", b=f"({two})")}

def values(shape, dtype):
    if dtype in (torch.float8_e8m0fnu,):
        return torch.randint(100, 140, shape, dtype=torch.uint8).view(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32)
        return drawn.to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 99, shape).to(dtype)

def get_inputs():
    x = values({shape}, torch.{dtype})
    x = {layout.format(x="x")}
    return [x{extra}]

def get_init_inputs():
    return []
"""


def outcome_of(text: str, name: str) -> tuple[str, str]:
    """The outcome of one module: `sound`, `weak`, `refused` or `fault`, with a sentence."""
    try:
        loaded = load_task(Task(name=name, source=text))
        found = audit(loaded)
        conditions_of(loaded)
    except UsageError as error:
        said = str(error)
        is_told = said.startswith(f"task {name}: ") and "\n" not in said.strip()
        return ("refused", said) if is_told else ("fault", f"unclear: {said}")
    except Exception as error:  # noqa: BLE001 - these are looked for
        return "fault", f"{type(error).__name__}: {error}"
    return ("weak", found[0].detail) if found else ("sound", "")


def run(tasks: int, seed: int) -> dict[str, Any]:
    """Audits so many modules; counts, the reasons of refusals, and all faults."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    faults = []
    start = time.monotonic()
    for number in range(tasks):
        text = module(rng)
        outcome, said = outcome_of(text, f"fuzz{number}")
        counts[outcome] += 1
        if outcome == "refused":
            reasons[" ".join(said.partition(": ")[2].split()[:7])] += 1
        if outcome == "fault":
            faults.append({"number": number, "said": said[:300], "text": text})
    return {
        "tasks": tasks, "seed": seed, "torch": torch.__version__, "counts": dict(counts),
        "seconds": round(time.monotonic() - start, 1), "reasons": dict(reasons.most_common(25)),
        "faults": faults,
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tasks", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--output", type=Path, default=RESULTS)
    asked = options.parse_args()
    torch.set_num_threads(1)
    found = run(asked.tasks, asked.seed)
    asked.output.write_text(page(found))
    print(page(found))
    for fault in found["faults"]:
        print(json.dumps(fault, indent=1))


def page(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    counts = {name: found["counts"].get(name, 0) for name in ("sound", "weak", "refused", "fault")}
    command = (
        f"python -m tests.benchmarks.task_fuzz --tasks {found['tasks']} --seed {found['seed']}"
    )
    made = (
        f"`{command}`, torch {found['torch']}, CPU, {found['seconds']} s. Dtypes, layouts, trees, "
        "shapes and operations are drawn at random; most modules cannot run. `fault` would be an "
        "exception of the judge, or a refusal of more than one line."
    )
    lines = [
        "# Generated task modules",
        "",
        made,
        "",
        "| outcome | modules |",
        "| --- | --- |",
        *(f"| {name} | {number} |" for name, number in counts.items()),
        "",
        "| refusals begin with | modules |",
        "| --- | --- |",
        *(f"| {reason} | {number} |" for reason, number in found["reasons"].items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
