"""Geometry of the lineage picture: programs in rows by generation.

The way to the winner runs straight down at the left, with its labels; all other programs stand to
the right of it, near their parents.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from evolve.core.lineage import Step
from evolve.core.protocols import Elite
from evolve.report.lineage import graph
from evolve.report.text import count_text, ratio_text

if TYPE_CHECKING:
    import networkx

MAX_NODES = 600
PER_ROW = 44
_EDGE, _SPINE, _FIRST, _PITCH, _TOP = 24.0, 170.0, 206.0, 17.0, 18.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A program in the picture; `heat` in 0..1 grows with its speedup, None if it has none."""

    number: int
    sequence: int
    parent: int | None
    x: float
    y: float
    shape: str  # winner | elite | kept | failed | unjudged
    heat: float | None
    on_path: bool
    title: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A parent-child relation; `child` is a node's number, `path` SVG path data."""

    child: int
    path: str
    main: bool
    on_path: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LineagePicture:
    """Everything the drawing needs, in its own units; `left_out` programs are not in it."""

    width: float
    height: float
    nodes: list[Node]
    edges: list[Edge]
    generations: int
    left_out: int


def lineage_picture(
    steps: Iterable[Step], baseline: str, path: Sequence[str], held: Iterable[Elite]
) -> LineagePicture | None:
    """The picture, or None if no program was made.

    Args:
        steps: of the run, in order.
        baseline: that speedups are over.
        path: the way to the best program, by digest.
        held: content of the archive.
    """
    full = graph(steps, baseline)
    if not full:
        return None
    elites = sorted(held, key=lambda elite: (-elite.fitness.value, elite.sequence))
    chosen = _chosen(full, path, elites)
    generation = _generations(full)
    places = _places(full, chosen, path, generation)
    nodes = _nodes(full, places, path, elites)
    return LineagePicture(
        width=max(node.x for node in nodes) + 24,
        height=max(node.y for node in nodes) + 22,
        nodes=nodes,
        edges=_edges(full, places, path),
        generations=1 + max(generation[digest] for digest in chosen),
        left_out=len(full) - len(chosen),
    )


def _chosen(
    full: "networkx.DiGraph", path: Sequence[str], elites: Iterable[Elite]
) -> dict[str, None]:
    """The best path, then elites each with its line of main parents, then the fastest others."""
    chosen = dict.fromkeys(path[-MAX_NODES:])
    for elite in elites:
        line = _line(full, elite.program, chosen)
        if len(chosen) + len(line) > MAX_NODES:
            break
        chosen.update(dict.fromkeys(line))
    room = MAX_NODES - len(chosen)
    others = (digest for digest in full if digest not in chosen)
    ranked = sorted(others, key=lambda digest: -full.nodes[digest].get("speedup", 0.0))
    chosen.update(dict.fromkeys(ranked[:room]))
    return dict.fromkeys(sorted(chosen, key=lambda digest: full.nodes[digest]["sequence"]))


def _line(full: "networkx.DiGraph", program: str, known: Mapping[str, None]) -> list[str]:
    line = []
    digest: str | None = program if program in full else None
    while digest is not None and digest not in known:
        line.append(digest)
        digest = _main_parent(full, digest)
    return line


def _main_parent(full: "networkx.DiGraph", digest: str) -> str | None:
    parents = full.pred[digest]
    return min(parents, key=lambda parent: parents[parent]["rank"], default=None)


def _generations(full: "networkx.DiGraph") -> dict[str, int]:
    """Longest way from a root; nodes are in the order of their making, so parents come first."""
    generation: dict[str, int] = {}
    for digest in full:
        parents = [generation[parent] for parent in full.pred[digest]]
        generation[digest] = 1 + max(parents) if parents else 0
    return generation


def _places(
    full: "networkx.DiGraph",
    chosen: Iterable[str],
    path: Sequence[str],
    generation: Mapping[str, int],
) -> dict[str, tuple[float, float]]:
    by_generation = sorted(chosen, key=lambda digest: generation[digest])
    left = _FIRST if path else _EDGE
    rows = [list(row) for _, row in groupby(by_generation, key=lambda d: generation[d])]
    pitch = min(max(2600 / len(rows), 16.0), 46.0)
    places: dict[str, tuple[float, float]] = {}
    y = _TOP
    for row in rows:
        others = [digest for digest in row if digest not in path]
        others.sort(key=lambda digest: _wish(full, digest, places))
        for digest in set(row) & set(path):
            places[digest] = (_SPINE, y)
        for index, digest in enumerate(others):
            column, line = index % PER_ROW, index // PER_ROW
            places[digest] = (left + _PITCH * column, y + _PITCH * line)
        y += pitch + _PITCH * max((len(others) - 1) // PER_ROW, 0)
    return places


def _wish(
    full: "networkx.DiGraph", digest: str, places: Mapping[str, tuple[float, float]]
) -> tuple[float, int]:
    """Where a node would like to stand: under the middle of its placed parents."""
    above = [places[parent][0] for parent in full.pred[digest] if parent in places]
    return (math.fsum(above) / len(above) if above else 0.0, full.nodes[digest]["sequence"])


def _nodes(
    full: "networkx.DiGraph",
    places: Mapping[str, tuple[float, float]],
    path: Sequence[str],
    elites: Iterable[Elite],
) -> list[Node]:
    held = {elite.program for elite in elites}
    number = {digest: index for index, digest in enumerate(places)}
    known = [full.nodes[digest].get("speedup") for digest in places]
    logs = [math.log(value) for value in known if value]
    low, spread = min(logs, default=0.0), (max(logs, default=0.0) - min(logs, default=0.0)) or 1.0
    nodes = []
    for digest, (x, y) in places.items():
        data = full.nodes[digest]
        value = data.get("speedup")
        nodes.append(
            Node(
                number=number[digest],
                sequence=data["sequence"],
                parent=number.get(_main_parent(full, digest) or ""),
                x=round(x, 1),
                y=round(y, 1),
                shape=_shape(digest, data, path, held),
                heat=round((math.log(value) - low) / spread, 2) if value else None,
                on_path=digest in path,
                title=_title(data),
                label=_label(data),
            )
        )
    return nodes


def _shape(digest: str, data: Mapping[str, Any], path: Sequence[str], held: set[str]) -> str:
    if path and digest == path[-1]:
        return "winner"
    if digest in held:
        return "elite"
    if "status" not in data:
        return "unjudged"
    return "kept" if data["status"] == "correct" else "failed"


def _label(data: Mapping[str, Any]) -> str:
    result = ratio_text(data["speedup"]) if "speedup" in data else "not timed"
    return f"#{data['sequence']} {data['operator'][:14]} {result}"


def _title(data: Mapping[str, Any]) -> str:
    words = [f"#{data['sequence']} {data['operator']}", data.get("status", "not evaluated")]
    if "speedup" in data:
        low, high = ratio_text(data["speedup_low"]), ratio_text(data["speedup_high"])
        words.append(f"{ratio_text(data['speedup'])} ({low} to {high})")
    return ", ".join([*words, count_text(data["evaluations"], "evaluation")])


def _edges(
    full: "networkx.DiGraph", places: Mapping[str, tuple[float, float]], path: Sequence[str]
) -> list[Edge]:
    number = {digest: index for index, digest in enumerate(places)}
    links = set(pairwise(path))
    edges = [
        Edge(
            child=number[child],
            path=_curve(places[parent], places[child]),
            main=parent == _main_parent(full, child),
            on_path=(parent, child) in links,
        )
        for child in places
        for parent in full.pred[child]
        if parent in places
    ]
    return sorted(edges, key=lambda edge: (edge.on_path, edge.main, edge.child))


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    middle = (start[1] + end[1]) / 2
    return (
        f"M{start[0]:.0f} {start[1]:.0f}C{start[0]:.0f} {middle:.0f} "
        f"{end[0]:.0f} {middle:.0f} {end[0]:.0f} {end[1]:.0f}"
    )
