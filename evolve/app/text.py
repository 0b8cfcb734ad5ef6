"""Formats of the terminal that reports do not use: speedups on one line, and tables."""

from collections.abc import Sequence

from evolve.core.measurement import Interval
from evolve.core.protocols import Progress
from evolve.report.text import count_text, duration_text, ratio_text, span_text, time_text


def speedup_text(ratio: Interval) -> str:
    """The ratio, and its 95 % interval in brackets."""
    return f"{ratio_text(ratio.value)} (95 % interval {span_text(ratio)})"


def interval_text(time_ms: Interval) -> str:
    """A time per call with the larger distance to a bound: `1.23 ms ± 0.8 %`."""
    return f"{time_text(time_ms.value)} ± {100 * time_ms.half_width:.1f} %"


def calls_text(progress: Progress) -> str:
    """Calls and their cost: `3 model calls, 1,200 tokens, 0.04 USD`."""
    cost = "cost unknown" if progress.usd is None else f"{progress.usd:.2f} USD"
    return f"{count_text(progress.calls, 'model call')}, {progress.tokens:,} tokens, {cost}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )
    return "\n".join(lines)


def elapsed_text(seconds: float) -> str:
    """Whole seconds, for a figure that changes while it is read: `12 s`, `1 min 5 s`."""
    return f"{seconds:.0f} s" if seconds < 59.5 else duration_text(seconds)
