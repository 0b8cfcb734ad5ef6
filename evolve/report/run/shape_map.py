"""Speedups of the best programs case by case: a case that one program loses, another may win."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evolve.core.protocols import Elite
from evolve.core.run_store import RunStore
from evolve.report.text import printable, ratio_text, span_text
from evolve.store import RunRow

MAX_PROGRAMS = 12
MAX_CASES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeCell:
    """A program in a case; `heat` in 0..1 grows with its speedup, `loses` if that is below 1."""

    speedup: str
    span: str
    heat: float
    loses: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRow:
    """A program by the step that made it; None in a case that was not timed."""

    sequence: int
    operator: str
    cells: list[ShapeCell | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeMap:
    """The best programs, best first, over the cases; `left_out` cases are not shown."""

    cases: list[str]
    rows: list[ShapeRow]
    left_out: int


def shape_map(store: RunStore, run: RunRow, elites: Iterable[Elite]) -> ShapeMap | None:
    """The map of the best of some elites; None unless there are several timed cases."""
    best = sorted(elites, key=lambda elite: (-elite.fitness.value, elite.sequence))[:MAX_PROGRAMS]
    found = []
    for elite in best:
        verdict = store.attempt_evaluation(run.id, elite.program)
        cases = verdict.cases if verdict else ()
        ratios = {
            case.name: case.ratios[run.baseline] for case in cases if run.baseline in case.ratios
        }
        found.append((elite, ratios))
    names = list(dict.fromkeys(name for _, ratios in found for name in ratios))
    if len(names) < 2:
        return None
    logs = [math.log(ratio.value) for _, ratios in found for ratio in ratios.values()]
    low, spread = min(logs), (max(logs) - min(logs)) or 1.0
    rows = []
    for elite, ratios in found:
        cells = []
        for name in names[:MAX_CASES]:
            ratio = ratios.get(name)
            cells.append(
                None
                if ratio is None
                else ShapeCell(
                    speedup=ratio_text(ratio.value),
                    span=span_text(ratio),
                    heat=round((math.log(ratio.value) - low) / spread, 2),
                    loses=ratio.high < 1,
                )
            )
        rows.append(ShapeRow(sequence=elite.sequence, operator=elite.operator, cells=cells))
    shown = [printable(name) for name in names[:MAX_CASES]]
    return ShapeMap(cases=shown, rows=rows, left_out=max(len(names) - MAX_CASES, 0))
