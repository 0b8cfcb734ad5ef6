"""Mutants: copies of a correct kernel with one small mistake each, of the kinds that people make.

A judge that is given them shows what it misses (DeMillo, Lipton and Sayward, 1978: hints on test
data selection). Texts are edited by exact spans; nothing else of a source changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolve.core.errors import UsageError
from evolve.core.source.normalise import normalised_digest
from evolve.core.source.pytext import Edit, Module, apply, read


class Kind(StrEnum):
    """What sort of mistake a mutant makes."""

    BOUNDARY = "boundary"  # a mask dropped or off by one, a loop or a grid that ends too early
    SYNCHRONISATION = "synchronisation"  # a barrier, reduction or atomic taken out
    PRECISION = "precision"  # a shorter type, no Kahan term, no maximum subtracted
    ARITHMETIC = "arithmetic"  # another operator, sign, constant or function
    INITIALISATION = "initialisation"  # an accumulator or a masked lane that starts wrong
    INDEXING = "indexing"  # another stride, offset, axis or program id


@dataclass(frozen=True, slots=True)
class Change:
    """The edits of a module's text that make one mutant."""

    kind: Kind
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A source with one mistake; `before` and `after` are the lines that differ, from `line` on."""

    kind: Kind
    line: int
    before: str
    after: str
    source: str


@dataclass(frozen=True, slots=True)
class Mutants:
    """All mutants of a source in the order of its text; `duplicates` were the same program."""

    mutants: tuple[Mutant, ...]
    duplicates: int


def generate(source: str) -> Mutants:
    """Every mutant of a program whose kernels are Triton, or C++ in module-level strings.

    Raises:
        UsageError: the source does not parse, or has no kernel to change.
    """
    from evolve.evaluation.mutation.cpp import cpp_changes
    from evolve.evaluation.mutation.triton import triton_changes

    module = read(source)
    changes = [*triton_changes(module), *cpp_changes(module)]
    if not changes:
        raise UsageError(
            "the candidate has no kernel to change: mutants are made of functions under "
            "@triton.jit, and of C++ in strings at module level"
        )
    seen = {normalised_digest(source)}
    kept: list[Mutant] = []
    for change in sorted(changes, key=_place):
        mutant = _mutant(module, change)
        digest = normalised_digest(mutant.source)
        if digest not in seen:
            kept.append(mutant)
            seen.add(digest)
    return Mutants(tuple(kept), len(changes) - len(kept))


def sample(mutants: Sequence[Mutant], most: int) -> list[Mutant]:
    """At most so many of them, as evenly over the kinds as there are, spread over the text."""
    waiting = {kind: _spread([m for m in mutants if m.kind is kind]) for kind in Kind}
    chosen: list[Mutant] = []
    while any(waiting.values()) and len(chosen) < most:
        for rest in waiting.values():
            if rest and len(chosen) < most:
                chosen.append(rest.pop(0))
    return sorted(chosen, key=list(mutants).index)


def _spread(mutants: list[Mutant]) -> list[Mutant]:
    """Reordered so that any first few of them lie all over the list: by halves of halves."""
    order = sorted(range(len(mutants)), key=lambda index: f"{index:020b}"[::-1])
    return [mutants[index] for index in order]


def _place(change: Change) -> tuple[int, int, str, str]:
    first = change.edits[0]
    return first.start, first.end, change.kind, first.text


def _mutant(module: Module, change: Change) -> Mutant:
    text = module.source
    start = min(edit.start for edit in change.edits)
    end = max(edit.end for edit in change.edits)
    mutated = apply(text, change.edits)
    first = text.rfind("\n", 0, start) + 1
    before_end = _line_end(text, end)
    after_end = len(mutated) - (len(text) - before_end)
    return Mutant(
        kind=change.kind,
        line=text.count("\n", 0, start) + 1,
        before=_dedented(text[first:before_end]),
        after=_dedented(mutated[first:after_end]),
        source=mutated,
    )


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found


def _dedented(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n"))
