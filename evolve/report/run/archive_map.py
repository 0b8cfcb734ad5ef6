"""The archive as a heat map over two axes, or as a ranked list if slots have no axes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.core.measurement import Ratio
from evolve.core.protocols import Elite, rank
from evolve.report.text import ratio_text, span_text

MAX_RANKED = 20
MAX_SIDE = 24  # cells along an axis that a page can show

_COORDINATE = re.compile(r"([^=]+)=(.+)")
_ISLAND = re.compile(r"(\d+)/(.+)")
_PLACE = re.compile(r"#\d+$")  # the second, third ... place in a cell
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A filled place; `heat` in 0..1 grows with the speedup."""

    speedup: str
    heat: float
    sequence: int
    operator: str
    elites: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """`cells` are rows by `row_values`, columns by `column_values`; `folded` axes are not shown."""

    row_axis: str
    column_axis: str
    row_values: list[str]
    column_values: list[str]
    cells: list[list[Cell | None]]
    folded: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A place in the ranked list; `share` of the best speedup, for the bar."""

    slot: str
    speedup: str
    span: str
    share: float
    sequence: int
    operator: str


def heat_map(slots: Mapping[str, Elite]) -> HeatMap | None:
    """The map, or None if slot names are not coordinates such as `tiling=2..4|vector=wide`."""
    placed = [(coordinates(slot), elite) for slot, elite in sorted(slots.items())]
    names = {tuple(found) for found, _ in placed}
    if len(names) != 1 or len(placed[0][0]) < 2:
        return None
    values = {
        name: sorted({found[name] for found, _ in placed}, key=_natural) for name in placed[0][0]
    }
    usable = [name for name in values if len(values[name]) <= MAX_SIDE]
    if len(usable) < 2:
        return None
    row, column = sorted(usable, key=lambda name: -len(values[name]))[:2][::-1]
    cells: dict[tuple[str, str], list[Elite]] = {}
    for found, elite in placed:
        cells.setdefault((found[row], found[column]), []).append(elite)
    fitness = [elite.fitness.value for elite in slots.values()]
    low, high = min(fitness), max(fitness)
    return HeatMap(
        row_axis=row,
        column_axis=column,
        row_values=values[row],
        column_values=values[column],
        cells=[
            [_cell(cells.get((r, c), []), low, high) for c in values[column]] for r in values[row]
        ],
        folded=[name for name in values if name not in (row, column)],
    )


def coordinates(slot: str) -> dict[str, str]:
    """The axes that a slot name spells out, its island first; empty if it spells none.

    >>> coordinates("tiling=2..4|vector=wide#2"), coordinates("17"), coordinates("3/17")
    ({'tiling': '2..4', 'vector': 'wide'}, {}, {})
    >>> coordinates("3/tiling=2..4|vector=wide")
    {'island': '3', 'tiling': '2..4', 'vector': 'wide'}
    """
    on_island = _ISLAND.fullmatch(slot)
    cell = on_island[2] if on_island else slot
    parts = [_COORDINATE.fullmatch(part) for part in _PLACE.sub("", cell).split("|")]
    if not all(parts):
        return {}
    island = {"island": on_island[1]} if on_island else {}
    return island | {part[1]: part[2] for part in parts if part}


def ranked(slots: Mapping[str, Elite]) -> list[Ranked]:
    """The best elites, fastest first."""
    order = sorted(slots.items(), key=lambda item: rank(item[1]))
    top = math.exp(order[0][1].fitness.value) if order else 1.0
    return [_ranked(slot, elite, top) for slot, elite in order[:MAX_RANKED]]


def _ranked(slot: str, elite: Elite, top: float) -> Ranked:
    fitness = elite.fitness
    ratio = Ratio(math.exp(fitness.value), math.exp(fitness.low), math.exp(fitness.high))
    return Ranked(
        slot=slot,
        speedup=ratio_text(ratio.value),
        span=span_text(ratio),
        share=round(ratio.value / top, 3),
        sequence=elite.sequence,
        operator=elite.operator,
    )


def _cell(elites: Sequence[Elite], low: float, high: float) -> Cell | None:
    if not elites:
        return None
    best = min(elites, key=rank)
    return Cell(
        speedup=ratio_text(math.exp(best.fitness.value)),
        heat=round((best.fitness.value - low) / (high - low), 2) if high > low else 1.0,
        sequence=best.sequence,
        operator=best.operator,
        elites=len(elites),
    )


def _natural(value: str) -> tuple[int, float, str]:
    """Sort key: by the first number in the text, texts without one last."""
    number = _NUMBER.search(value)
    return (0, float(number[0]), value) if number else (1, 0.0, value)
