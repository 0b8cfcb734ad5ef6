"""Tasks of `bench_languages`, and the programs of each language for them.

Programs are those that a search starts from: what the operators make of the compiler's output for
the reference, and the seeds that ship with a task; for attention also those in the folder
`attention`. A language without any has the honest kernels of the red team.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from evolve.core.compiled import WHOLE
from evolve.core.program import Assignment, Program
from evolve.core.protocols import Operator, Proposal
from evolve.core.source import tunables
from evolve.core.task import Case, Task
from evolve.languages.registry import detect_language
from evolve.tasks import find_task
from operators.local.compiler_seed import CompilerSeed
from operators.local.ported_seed import PortedSeed
from operators.local.ports import PORTS
from operators.local.template_seed import TemplateSeed
from operators.local.tuning.device import Limits
from operators.local.tuning.expectation import expected
from operators.local.tuning.resources import fits
from tests.operators.proposing import proposals
from tests.redteam.corpus import corpus

VARIANTS = {
    "cuda": ("default", "looped", "unsplit", "same_layout", WHOLE),
    "cpu": ("default", "unfused"),
}
"""Settings of the compiler by kind of device; equal code stands for the first."""

_DRAWN = 100  # instances of a program to choose from
_FOLDER = Path(__file__).parent
_VENDORS = re.compile(r"\btorch\.(mm|addmm|bmm|baddbmm|convolution|ops)\b|extern_kernels\.")
_ATTENTION = """import torch
from torch import nn

BATCH, HEADS, LENGTH, WIDTH = 2, 2, 64, 32


class Model(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    # Larger queries sharpen the weights: with flat ones every output is near the mean of v.
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(3))
    return [q * 2.5, k, v]


def get_init_inputs():
    return []
"""
_SQUARES = {
    "cuda": {f"{n}^3": {"M": n, "N": n, "K": n} for n in (4096, 8192)},
    "cpu": {f"{n}^3": {"M": n, "N": n, "K": n} for n in (256, 512)},
}
_ROWS = {"cuda": ((8192, 8192), (16384, 16384)), "cpu": ((256, 512), (512, 1024))}
_HEADS = {"cuda": ((8, 16, 2048, 64), (4, 16, 4096, 128)), "cpu": ((1, 2, 64, 32),)}


def _rows(device: str, *names: str) -> dict[str, dict[str, int]]:
    found = _ROWS[device]
    return {f"{m} x {n}": dict(zip(names, (m, n), strict=True)) for m, n in found}


def _heads(device: str) -> dict[str, dict[str, int]]:
    names = ("BATCH", "HEADS", "LENGTH", "WIDTH")
    found = _HEADS[device]
    return {" x ".join(map(str, n)): dict(zip(names, n, strict=True)) for n in found}


@dataclass(frozen=True, slots=True)
class Place:
    """An operation at a size.

    Attributes:
        operation: in words.
        size: in words.
        shipped: name of the shipped task, empty for attention.
        precision: of the task.
        constants: of the task's module.
    """

    operation: str
    size: str
    shipped: str
    precision: str
    constants: Mapping[str, int]

    @property
    def key(self) -> tuple[str, str]:
        return self.operation, self.size

    @property
    def task(self) -> Task:
        """To be judged."""
        found = find_task(self.shipped) if self.shipped else None
        return Task(
            name=self.shipped or "attention",
            source=found.source if found else _ATTENTION,
            precision=self.precision,
            cases=(Case(name="main", constants=self.constants),),
            seeds=found.seeds if found else (),
        )


def places(device: str) -> list[Place]:
    """All of them, for a kind of device; the smaller size of each operation first."""
    square, heads = _SQUARES[device], _heads(device)
    softmax = _rows(device, "ROWS", "COLUMNS")
    layernorm = _rows(device, "TOKENS", "FEATURES")
    half = "bf16" if device == "cuda" else "fp32"
    of_operations = [
        [Place("product, fp32", size, "matmul", "fp32", found) for size, found in square.items()],
        [Place("product, bf16", size, "matmul", "bf16", found) for size, found in square.items()],
        [Place("softmax, fp32", size, "softmax", "fp32", found) for size, found in softmax.items()],
        [Place("layer norm, fp32", size, "layernorm", "fp32", one)
         for size, one in layernorm.items()],
        [Place(f"attention, {half}", size, "", half, found) for size, found in heads.items()],
    ]  # fmt: skip
    return [each for of_size in zip_longest(*of_operations) for each in of_size if each is not None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program with its tunables set.

    Attributes:
        program: its origin.
        assignment: of its tunables; empty for its defaults.
        source: its text.
    """

    program: str
    assignment: Assignment
    source: str

    @property
    def digest(self) -> str:
        return Program(self.source).digest


def candidates(
    language: str, place: Place, task: Task, most: int, instances: int
) -> list[Candidate]:
    """Of a language, at most so many programs and instances of each; defaults of all come first.

    Args:
        language: by name.
        place: the operation.
        task: its task with the compiler's output.
        most: programs.
        instances: of each program, at most.
    """
    programs = dict(_programs(language, place, task))
    seen: dict[str, Candidate] = {}
    several = [_instances(name, text, instances) for name, text in [*programs.items()][:most]]
    for row in zip_longest(*several):
        for each in row:
            if each is not None:
                seen.setdefault(each.digest, each)
    return [*seen.values()]


def _programs(language: str, place: Place, task: Task) -> Iterator[tuple[str, str]]:
    """Names and sources; those of the red team only if there are no others."""
    found = False
    for name, source in _starting(language, place, task):
        found = True
        yield name, source
    if not found and place.precision == "fp32":
        for entry in corpus("honest"):
            if entry.task == task.name and detect_language(entry.source).name == language:
                yield f"red team: {entry.name}", entry.source


def _starting(language: str, place: Place, task: Task) -> Iterator[tuple[str, str]]:
    seen = set()
    for operator in _operators(language):
        for found in proposals(operator, task):
            if not isinstance(found, Proposal) or _VENDORS.search(found.program.source):
                continue
            source = found.program.source
            if detect_language(source).name == language and source not in seen:
                seen.add(source)
                yield f"{type(operator).__name__}: {found.note}", source
    if place.precision == "fp32":  # seeds know no other
        for number, source in enumerate(task.seeds):
            if detect_language(source).name == language:
                yield f"seed {number}", source
    own = _FOLDER / "attention" / f"{language}.py"
    if not place.shipped and own.exists():
        yield "attention", own.read_text()


def _operators(language: str) -> Sequence[Operator]:
    if language in PORTS:
        return (PortedSeed(language),)
    if language == "triton":
        variants = [name for name in VARIANTS["cuda"] if name != WHOLE]
        return TemplateSeed(["default", "same_layout", WHOLE]), CompilerSeed(variants)
    return (CompilerSeed(VARIANTS["cpu"]),)


def _instances(name: str, source: str, count: int) -> Iterator[Candidate]:
    """The defaults, then of many instances those of which `tune` would expect most."""
    yield Candidate(name, {}, source)
    space, rng = tunables.parse(source), random.Random(source)
    drawn: list[Assignment] = []
    for _ in range(min(_DRAWN, 4 * space.size)):
        assignment = space.sample(rng)
        if assignment not in (space.defaults, *drawn) and fits(source, assignment):
            drawn.append(assignment)
    best = sorted(zip(-expected(source, drawn, Limits()), range(len(drawn)), strict=True))
    for _, at in best[: count - 1]:
        yield Candidate(name, drawn[at], tunables.render(source, drawn[at]))
