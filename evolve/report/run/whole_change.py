"""What changed between the first and the best program, with the operators' words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.core.lineage import Step
from evolve.report.lineage import speedup
from evolve.report.run.best_lineage import DiffLine, change_of
from evolve.report.text import printable, ratio_text

MAX_WORDS = 40  # steps whose words are shown: the first, and the last ones
MAX_NOTE = 600  # characters
MAX_DIFF = 40_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the operator of a step said of its change; `speedup` is "" if it was not timed."""

    sequence: int
    operator: str
    note: str
    speedup: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeChange:
    """The first and the best program, and what lies between; `cut` lines are left out."""

    first: Words
    best: Words
    words: list[Words]
    diff: list[DiffLine]
    added: int
    removed: int
    cut: int


def whole_change(
    way: Sequence[Step], sources: Mapping[str, str], baseline: str
) -> WholeChange | None:
    """The change along the way to the best program; None if it is the first one.

    Args:
        way: the steps that made the best program and its main ancestors, in order.
        sources: of the first and the last program, by digest.
        baseline: that speedups are over.
    """
    if len(way) < 2:
        return None
    lines, shown = change_of(sources[str(way[0].program)], sources[str(way[-1].program)], MAX_DIFF)
    said = [_words(step, baseline) for step in way]
    kept = said if len(said) <= MAX_WORDS else [said[0], *said[1 - MAX_WORDS :]]
    return WholeChange(
        first=said[0],
        best=said[-1],
        words=kept,
        diff=shown,
        added=sum(line.kind == "add" for line in lines),
        removed=sum(line.kind == "del" for line in lines),
        cut=len(lines) - len(shown),
    )


def _words(step: Step, baseline: str) -> Words:
    ratio = speedup(step, baseline)
    return Words(
        sequence=step.sequence,
        operator=printable(step.operator),
        note=printable(step.note[:MAX_NOTE]),
        speedup=ratio_text(ratio.value) if ratio else "",
    )
