"""Mate selection for crossover: programs that are faster where the parent is not."""

import ast
import math
import re
from collections.abc import Mapping

from evolve.core.evaluation import Evaluation
from evolve.core.measurement import Interval
from evolve.core.protocols import Context, Elite
from evolve.core.source.tunables import parse
from operators.prompting.excerpts import statements
from operators.prompting.inspirations import distance

_LOOKED_AT = 16  # of the best peers
_LOG_SLOWEST = math.log(0.5)  # of the other's speed, for one that is better nowhere
_SURELY = 1.1  # least ratio that counts: kernels are timed in one call, without an interval
_KERNEL = re.compile(
    r"^kernel '(\w{1,60})': (?:grid [\d x]{1,40}, )?\d+% of the time, ([\d.e+-]+) (ms|us)\b",
    re.MULTILINE,
)


def complementary(context: Context, parent: Elite, count: int) -> list[Elite]:
    """The peers whose strengths differ most from the parent's, the best mate first.

    Sorted by the number of cases in which a peer is measurably faster, then of kernels, then of
    descriptors that differ (other kernels, another pattern), then in the archive's order.
    """
    own = context.facts.evaluation(parent.program)
    rated = []
    for peer in context.peers[:_LOOKED_AT]:
        if peer.program == parent.program:
            continue
        theirs = context.facts.evaluation(peer.program)
        if has_to_give(context, peer, parent):
            wins, kernels = _wins(theirs, own), len(faster_kernels(theirs, own))
            rated.append((-wins, -kernels, -distance(peer.descriptors, parent.descriptors), peer))
    rated.sort(key=lambda row: row[:3])  # stable: the archive's order decides among equals
    return [row[-1] for row in rated[:count]]


def has_to_give(context: Context, one: Elite, other: Elite) -> bool:
    """Whether the first has something that a child of both could take.

    It is measurably faster in a case or a kernel, or it has parts that the other has not and is at
    least half as fast. Values of tunables are no parts: tuning finds those.
    """
    mine, its = (context.facts.evaluation(elite.program) for elite in (one, other))
    if _wins(mine, its) or faster_kernels(mine, its):
        return True
    if one.fitness.value - other.fitness.value < _LOG_SLOWEST:
        return False
    sources = [context.facts.source(elite.program) for elite in (one, other)]
    return not _parts(sources[0]) <= _parts(sources[1])


def _parts(source: str) -> set[str]:
    """A program's top-level statements, as they parse; without its own words and tunables."""
    tunables = {"TUNABLE", *parse(source).defaults}
    found = set()
    for dump, node in statements(source):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) if name in tunables:
                continue
        found.add(dump)
    return found


def faster_kernels(
    one: Evaluation | None, other: Evaluation | None
) -> Mapping[str, tuple[float, float]]:
    """Kernels of both programs that are faster in the first, with both times, in ms.

    By the profile of one call, all launches of a kernel together.
    """
    mine, its = kernel_times(one), kernel_times(other)
    both = {name: (time, its[name]) for name, time in mine.items() if name in its}
    return {name: times for name, times in both.items() if _SURELY * times[0] <= times[1]}


def kernel_times(evaluation: Evaluation | None) -> dict[str, float]:
    """The time of each kernel by name, in ms; empty if the judge does not say it."""
    found: dict[str, float] = {}
    for name, time, unit in _KERNEL.findall("" if evaluation is None else evaluation.feedback):
        found[name] = found.get(name, 0.0) + float(time) * (1.0 if unit == "ms" else 1e-3)
    return found


def case_times(evaluation: Evaluation | None) -> dict[str, Interval]:
    """The program's time in each timed case by name, in ms."""
    cases = evaluation.cases if evaluation else ()
    return {case.name: case.times_ms["candidate"] for case in cases if "candidate" in case.times_ms}


def _wins(one: Evaluation | None, other: Evaluation | None) -> int:
    """In how many cases the first is faster, by intervals that do not overlap."""
    mine, its = case_times(one), case_times(other)
    return sum(name in its and time.high < its[name].low for name, time in mine.items())
