"""The best path step by step: changes and their gains."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evolve.core.program import Assignment
from evolve.languages.registry import detect_language
from evolve.report.lineage import PathStep
from evolve.report.run.facts import RunFacts
from evolve.report.text import count_text, ratio_text, span_text

MAX_STATIONS = 40
MAX_DIFF_LINES = 300
MAX_LINES = 3000  # of a source, for the diff; difflib's worst case is quadratic
MAX_LINE = 300
MAX_DIFF_CHARS = 160_000  # over all stations


@dataclass(frozen=True, slots=True)
class DiffLine:
    """`kind` is one of add, del, same, hunk; `sign` the mark that a person reads."""

    kind: str
    text: str

    @property
    def sign(self) -> str:
        return {"add": "+", "del": "\N{MINUS SIGN}", "hunk": "⋯"}.get(self.kind, " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One tunable's value before and after; None if it was as written."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One step of the best path, ready to be shown."""

    sequence: int
    operator: str
    kind: str
    note: str
    speedup: str
    span: str
    gain: str
    gain_span: str
    gain_sign: str  # gain | loss | even | ""
    others: list[str]
    changes: list[Change]
    diff: list[DiffLine]
    added: int
    removed: int
    cut: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BestLineage:
    """The stations that are shown; `left_out` others stood after the first."""

    stations: list[Station]
    left_out: int


def shown(facts: RunFacts) -> BestLineage:
    """The stations from the root to the champion; of a long path the first and the last ones."""
    path = facts.path
    if len(path) > MAX_STATIONS:
        path = [path[0], *path[1 - MAX_STATIONS :]]
    made = {step.program: step.sequence for step in reversed(facts.steps)}
    room = MAX_DIFF_CHARS
    stations = []
    for entry in path:
        station, used = _station(entry, facts.sources, made, room)
        room -= used
        stations.append(station)
    return BestLineage(stations=stations, left_out=len(facts.path) - len(path))


def _station(
    entry: PathStep, sources: Mapping[str, str], made: Mapping[str | None, int], room: int
) -> tuple[Station, int]:
    step, before = entry.step, entry.before
    source = sources[str(step.program)]
    lines = list(_diff(sources[str(before.program)], source)) if before else []
    shown, used = _fitting(lines, room)
    gain = None if entry.verifies else entry.indirect_gain  # the same program gains nothing
    return Station(
        sequence=step.sequence,
        operator=step.operator,
        kind=_kind(entry, source, bool(lines)),
        note=step.note[:600],
        speedup=ratio_text(entry.ratio.value) if entry.ratio else "not timed",
        span=span_text(entry.ratio) if entry.ratio else "",
        gain=ratio_text(gain.value) if gain else "",
        gain_span=span_text(gain) if gain else "",
        gain_sign="gain"
        if gain and gain.is_gain
        else "loss"
        if gain and gain.high < 1
        else "even"
        if gain
        else "",
        others=[f"#{made[parent]}" for parent in step.parents[1:] if parent in made],
        changes=_changes(before.assignment if before else {}, step.assignment),
        diff=shown,
        added=sum(1 for line in lines if line.kind == "add"),
        removed=sum(1 for line in lines if line.kind == "del"),
        cut=len(lines) - len(shown),
    ), used


def change_of(before: str, after: str, room: int) -> tuple[list[DiffLine], list[DiffLine]]:
    """The lines of a difference, and those of them that fit into `room` characters."""
    lines = list(_diff(before, after))
    return lines, _fitting(lines, room)[0]


def _kind(entry: PathStep, source: str, edited: bool) -> str:
    if entry.verifies:
        return "measured again in fresh processes; the headline rests on this"
    if entry.before is None:
        size = count_text(source.count("\n") + 1, "line")
        return f"starting point, {size} of {detect_language(source).name}"
    return "new program" if edited else "other values of its tunables"


def _changes(before: Assignment, after: Assignment) -> list[Change]:
    names = sorted({*before, *after})
    return [
        Change(
            name=name,
            before=str(before[name]) if name in before else None,
            after=str(after[name]) if name in after else None,
        )
        for name in names
        if before.get(name) != after.get(name)
    ]


def _diff(before: str, after: str) -> Iterator[DiffLine]:
    kinds = {"+": "add", "-": "del", "@": "hunk", " ": "same"}
    for number, line in enumerate(
        difflib.unified_diff(_lines(before), _lines(after), lineterm="", n=3)
    ):
        if number < 2:  # the names of the two files, which have none
            continue
        kind = kinds[line[0]]
        yield DiffLine(kind, line if kind == "hunk" else shortened(line[1:]))


def _lines(source: str) -> list[str]:
    return source.replace("\r\n", "\n").split("\n")[:MAX_LINES]


def _fitting(lines: list[DiffLine], room: int) -> tuple[list[DiffLine], int]:
    used = 0
    for index, line in enumerate(lines[:MAX_DIFF_LINES]):
        if used + len(line.text) > room:
            return lines[:index], used
        used += len(line.text)
    return lines[:MAX_DIFF_LINES], used


def shortened(line: str) -> str:
    """A line of source at a width that a page can hold."""
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]} … ({len(line) - MAX_LINE:,} more characters)"
