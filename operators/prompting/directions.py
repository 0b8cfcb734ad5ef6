"""A direction for each answer, so that not all answers to the same state of a run are alike."""

from collections.abc import Sequence

from evolve.core.protocols import Context
from evolve.languages.cpp import CPP
from operators.base import Base
from operators.knowledge import PRODUCTS, Bottleneck, Diagnosis
from operators.quoting import Quoted, quote, shortened

_MAX_TAKEN = 4
_MAX_NOTE_CHARS = 300

_ANY = (
    "algebra first: find what need not be computed at all, by linearity, reordering or folding",
    "one kernel in place of several: keep what they hand to one another in registers",
    "the inner loop: what it loads, in what shape and order, and how far ahead",
)
DIRECTIONS: dict[str, tuple[str, ...]] = {
    Bottleneck.MEMORY: (
        "fewer passes over memory: what is read or written twice stays in registers",
        "algebra: a smaller operand or a smaller intermediate that gives the same result",
        "wider and contiguous accesses, and more bytes in flight at a time",
    ),
    Bottleneck.COMPUTE: (
        "fewer operations, by algebra",
        "cheaper operations: what is computed again, divided or converted in an inner loop",
    ),
    Bottleneck.LATENCY: (
        "more loads in flight: unrolling, stages, or several rows for each program",
        "fewer steps that wait for one another: shorter chains of reductions and barriers",
        "fewer registers or less shared memory, so that more programs run beside one another",
    ),
    Bottleneck.PARALLELISM: (
        "more programs: split the long dimension, and add the parts in a second step",
        "even work: a number of programs that fills the last wave, or persistent programs",
    ),
    Bottleneck.LAUNCH: (
        "fewer launches: one kernel for all of it",
        "less work on the host for each call: fewer arguments, views and allocations",
    ),
}
"""By what limits the program to change; `_ANY` where nothing is known."""

_OF_PRODUCTS: dict[str, tuple[str, ...]] = {
    Bottleneck.MEMORY: ("reuse: an order of tiles in which operands are read from the cache",),
    Bottleneck.COMPUTE: (
        "cheaper arithmetic that keeps the error: which parts of split operands are needed",
        "larger tiles and deeper pipelines for the product, at fewer programs per processor",
        "work around the product: cut or convert operands once for each call, not once per tile",
    ),
}

_IN_CPP: dict[str, tuple[str, ...]] = {
    Bottleneck.COMPUTE: (
        "fewer operations, by algebra",
        "whole vectors: contiguous inner loops without branches, and several accumulators",
        "register blocking: a tile of results in registers, and several uses of each operand",
        "operands packed into blocks that fit the caches, where strides are long",
    ),
    Bottleneck.LATENCY: (
        "independent chains: several accumulators, and rows or images side by side",
        "whole vectors: contiguous inner loops without branches",
        "one parallel region for all of it: starting threads costs microseconds",
    ),
    Bottleneck.PARALLELISM: (
        "even work for all cores, by the outermost loop that has enough steps",
        "a long sum in parts, one for each core, that are added in the end",
    ),
}
"""In place of the above for programs in C++: there are no tiles, stages or programs of a grid."""


def directions_for(found: Diagnosis) -> tuple[str, ...]:
    """The directions that go with a limit, with the kind of operation, and with the language."""
    if found.language == CPP.name and found.bottleneck in _IN_CPP:
        return _IN_CPP[found.bottleneck]
    more = _OF_PRODUCTS.get(found.bottleneck, ()) if found.category in PRODUCTS else ()
    return (*DIRECTIONS.get(found.bottleneck, _ANY), *more)


def direction(context: Context, found: Diagnosis) -> str:
    """That of this ticket: they take turns, so that neighbours differ."""
    known = directions_for(found)
    return known[context.step % len(known)]


def taken(context: Context, base: Base) -> Sequence[Quoted]:
    """Children of the same program that are being judged now."""
    if not base.programs:
        return ()
    near = context.facts.children(base.digest, 4 * _MAX_TAKEN)
    notes = [each.note for each in near if each.status is None and each.program and each.note]
    return [quote(shortened(note, _MAX_NOTE_CHARS), "design") for note in notes[:_MAX_TAKEN]]
