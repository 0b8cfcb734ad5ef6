"""Further times of a verdict: of calls recorded as a graph, and by KernelBench's way of timing."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import chain

from evolve.app.text import speedup_text
from evolve.core.evaluation import Evaluation
from evolve.report.text import baseline_name, printable


def graph_lines(evaluation: Evaluation) -> Iterator[str]:
    """A line for each case whose calls were recorded as a CUDA graph."""
    for name, samples in evaluation.case_samples.items():
        if (found := samples.graph) is None:
            continue
        for side, ratio in found.ratios.items():
            own, other = (_median_ms(found.ms[of]) for of in ("candidate", side))
            yield (
                f"graph      case {name}: {speedup_text(ratio)} over "
                f"{baseline_name(side)} with calls recorded as a CUDA graph, {own:.4g} ms against "
                f"{other:.4g} ms"
            )
        for side, reason in found.why_not.items():
            yield f"graph      case {name}: {side} cannot be recorded: {printable(reason[:200])}"


def kernelbench_lines(evaluation: Evaluation) -> Iterator[str]:
    """Times as KernelBench takes them, for comparison with published numbers.

    The process that runs the calls holds that clock, so they decide nothing.
    """
    rows = {
        name: samples.self_reported
        for name, samples in evaluation.case_samples.items()
        if samples.self_reported
    }
    if not rows:
        yield "kernelbench  no times: the candidate was not timed, or not on a GPU"
    for name, sides in rows.items():
        times = {side: times["kernelbench_ms"] for side, times in sides.items() if times}
        said = ", ".join(f"{side} {ms:.4g} ms" for side, ms in times.items())
        yield f"kernelbench  case {name}: {said} (told by the process itself; decides nothing)"


def _median_ms(rows: Sequence[Sequence[float]]) -> float:
    return statistics.median(chain.from_iterable(rows))
