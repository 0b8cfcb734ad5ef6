"""The champion case by case, each with its interval on a shared axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evolve.core.measurement import Ratio
from evolve.report.run.facts import RunFacts
from evolve.report.text import baseline_name, ratio_text, span_text, time_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """An interval on a shared log axis: places in percent from the left."""

    value: float
    low: float
    high: float
    one: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLine:
    """A case of the task as the champion did in it."""

    name: str
    weight: str
    verdict: str  # faster | slower | even | not timed
    baseline_time: str
    candidate_time: str
    speedup: str
    span: str
    forest: Forest | None
    total: bool = False


def case_lines(facts: RunFacts) -> list[CaseLine]:
    """The champion's cases, and the weighted total if there are several timed ones."""
    if facts.champion is None:
        return []
    baseline, cases = facts.baseline, facts.champion.evaluation.cases
    timed = [case.ratios[baseline] for case in cases if baseline in case.ratios]
    axis = [*timed, facts.champion.ratio]
    lines = [
        _case_line(
            case.name,
            f"{case.weight:g}" if case.timed else "",
            case.times_ms,
            case.ratios.get(baseline),
            baseline,
            axis,
        )
        for case in cases
    ]
    if len(timed) > 1:
        total = facts.champion.ratio
        line = _case_line("all, weighted", "", {}, total, baseline, axis)
        lines.append(replace(line, total=True))
    return lines


def _case_line(
    name: str,
    weight: str,
    times: Mapping[str, Any],
    ratio: Ratio | None,
    baseline: str,
    axis: Sequence[Ratio],
) -> CaseLine:
    return CaseLine(
        name=name,
        weight=weight,
        verdict=_verdict(ratio),
        baseline_time=time_text(times[baseline].value) if baseline in times else "",
        candidate_time=time_text(times["candidate"].value) if "candidate" in times else "",
        speedup=ratio_text(ratio.value) if ratio else "",
        span=span_text(ratio) if ratio else "",
        forest=_forest(ratio, axis) if ratio else None,
    )


def _verdict(ratio: Ratio | None) -> str:
    if ratio is None:
        return "not timed"
    if ratio.is_gain:
        return "faster"
    return "slower" if ratio.high < 1 else "even"


def _forest(ratio: Ratio, axis: Sequence[Ratio]) -> Forest:
    low = math.log(min(1.0, *(other.low for other in axis)))
    high = math.log(max(1.0, *(other.high for other in axis)))
    margin = 0.06 * (high - low) or 0.1

    def place(value: float) -> float:
        return round(100 * (math.log(value) - low + margin) / (high - low + 2 * margin), 2)

    return Forest(
        value=place(ratio.value), low=place(ratio.low), high=place(ratio.high), one=place(1.0)
    )


def comparison_lines(facts: RunFacts) -> list[tuple[str, str, str]]:
    """Baselines other than the headline's: name, speedup, interval."""
    if facts.champion is None:
        return []
    others = {
        name: ratio
        for name, ratio in facts.champion.evaluation.ratios.items()
        if name != facts.baseline
    }
    return [
        (baseline_name(name), ratio_text(ratio.value), span_text(ratio))
        for name, ratio in sorted(others.items())
    ]
