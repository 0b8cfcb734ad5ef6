"""Elites, facts and contexts to test parts of a search with, without a store or a device."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence

from evolve.core.measurement import Interval
from evolve.core.model import ModelCard
from evolve.core.program import Assignment
from evolve.core.protocols import Context, Elite
from evolve.testing.facts import MemoryFacts

__all__ = ["MemoryFacts", "make_context", "make_elite"]


def make_elite(
    program: str,
    *,
    speedup: float = 1.0,
    sequence: int = 0,
    assignment: Assignment | None = None,
    descriptors: Mapping[str, float | str] | None = None,
) -> Elite:
    """An elite with an interval of 2 % around its log speedup."""
    fitness = math.log(speedup)
    return Elite(
        program=program,
        assignment=assignment or {},
        fitness=Interval(fitness, fitness - 0.02, fitness + 0.02),
        descriptors=descriptors or {},
        sequence=sequence,
        operator="test",
    )


def make_context(
    facts: MemoryFacts,
    parents: Iterable[Elite] = (),
    *,
    sequence: int = 0,
    elites: Sequence[Elite] | None = None,
    device: Mapping[str, str] | None = None,
    model: ModelCard | None = None,
    operator: str = "",
    tunes: bool = True,
) -> Context:
    """An operator's context; the same arguments give the same random numbers.

    Args:
        facts: of the run.
        parents: the selection policy's choice.
        sequence: the ticket's number, and the seed of the random numbers.
        elites: the population; None for the parents.
        device: facts about the device.
        model: the one to answer; None for a model without limits.
        operator: the name that the operator is configured under.
        tunes: whether the run tunes declared constants.
    """
    chosen = tuple(parents)
    return Context(
        task=facts.task,
        parents=chosen,
        elites=list(chosen if elites is None else elites),
        facts=facts,
        rng=random.Random(sequence),
        sequence=sequence,
        device=device or {},
        model=model or ModelCard(name="model"),
        operator=operator,
        tunes=tunes,
    )
