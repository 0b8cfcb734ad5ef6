"""What the lines of `bench_languages` come to, as tables in Markdown."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolve.core.measurement import Ratio
from tests.benchmarks.language_programs import Place

Row = Mapping[str, Any]
_HEAD = (
    *("language", "program", "ms", "x eager", "x torch.compile", "roofline"),
    *("right of tried", "compile, s", "judge, s", "device, s"),
)


def table(rows: Sequence[Row], places: Sequence[Place]) -> str:
    """A table for each operation and size that has any line, and why languages are missing."""
    parts = list(_conditions(rows))
    for place in places:
        own = [row for row in rows if (row.get("operation"), row.get("size")) == place.key]
        if own:
            parts.append(f"\n### {place.operation}, {place.size}\n")
            parts += _of_place(own)
    skipped = {row["language"]: row["why"] for row in rows if row["kind"] == "skipped"}
    judged = {row["language"] for row in rows if row["kind"] == "verdict"}
    parts += [
        f"\n{name} was not judged: {why}" for name, why in skipped.items() if name not in judged
    ]
    return "\n".join(parts)


def best(rows: Sequence[Row], language: str) -> Row | None:
    """The verified one; else the fastest that is right, and not given up early."""
    right = [
        row for row in rows
        if row["kind"] == "verdict" and row["language"] == language and row["ratio"]
    ]  # fmt: skip
    final = [row for row in right if row["fidelity"] == "verify"]
    whole = [row for row in right if not row["early"]]
    return max(final or whole or right, key=lambda row: row["ratio"][0], default=None)


def _conditions(rows: Sequence[Row]) -> Iterator[str]:
    seen = dict.fromkeys(row["text"] for row in rows if row["kind"] == "conditions")
    yield from seen


def _of_place(rows: Sequence[Row]) -> Iterator[str]:
    yield f"| {' | '.join(_HEAD)} |"
    yield f"| {' | '.join('---' for _ in _HEAD)} |"
    baseline = next((row for row in rows if row["kind"] == "baseline"), None)
    compiled = Ratio(*baseline["ratio"]) if baseline and baseline["ratio"] else None
    tried = [row for row in rows if row["kind"] == "verdict"]
    found = {name: best(rows, name) for name in dict.fromkeys(row["language"] for row in tried)}
    eager = [row["eager_ms"] for row in tried if row["eager_ms"]]
    if eager:
        ms = statistics.median(eager)
        beside = _ratio(Ratio(1, 1, 1) / compiled) if compiled else ""
        yield _line("torch eager", "", f"{ms:.4g}", "1", beside)
        if compiled:
            yield _line("torch.compile", "", f"{ms / compiled.value:.4g}", _ratio(compiled), "1")
    for name, row in found.items():
        own = [each for each in tried if each["language"] == name]
        right = sum(each["ratio"] is not None for each in own)
        costs = [f"{right} of {len(own)}", *(_median(own, key) for key in _COSTS)]
        if row is None:
            why = own[0]["feedback"].partition("\n")[0][:80].replace("|", "/")
            yield _line(name, f"none is right: {own[0]['status']}, {why}", *[""] * 4, *costs)
            continue
        ratio = Ratio(*row["ratio"])
        beside = _ratio(ratio / compiled) if compiled else ""
        light = f"{row['light']:.0%}" if row["light"] else ""
        about = row["program"] + (", verified" if row["fidelity"] == "verify" else "")
        yield _line(name, about, f"{row['ms']:.4g}", _ratio(ratio), beside, light, *costs)


_COSTS = ("compile_s", "judge_s", "device_s")


def _median(rows: Sequence[Row], key: str) -> str:
    found = [row[key] for row in rows if row[key]]
    return f"{statistics.median(found):.1f}" if found else ""


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _line(*cells: str) -> str:
    return f"| {' | '.join([*cells, *[''] * (len(_HEAD) - len(cells))])} |"
