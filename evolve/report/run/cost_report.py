"""Costs, and the yield of each operator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evolve.core.evaluation import Status
from evolve.report.lineage import Contribution, operator_contribution
from evolve.report.run.facts import RunFacts
from evolve.report.text import count_text, duration_text, ratio_text, span_text
from evolve.search.termination import parse_duration

_BUDGETS = {
    "evaluations": "full evaluations",
    "stagnation": "evaluations since a clear gain",
    "proposals": "proposals",
    "tunings": "tunings of known programs",
    "screens": "cheap screens",
    "wall_time": "search time",
    "device_time": "device time",
    "tokens": "model tokens",
    "usd": "model cost, USD",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLine:
    """An operator's contribution in words."""

    operator: str
    proposals: int
    correct: str
    archived: int
    path_steps: int
    gain: str
    gain_span: str
    device_time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """The use of a resource, and its limit (empty: none)."""

    name: str
    used: str
    limit: str


def operator_lines(facts: RunFacts) -> list[OperatorLine]:
    """The work and yield of each operator."""
    champion = facts.champion.sequence if facts.champion else None
    found = operator_contribution(facts.steps, facts.baseline, champion)
    return [_operator_line(entry) for entry in found]


def _operator_line(entry: Contribution) -> OperatorLine:
    share = f" ({100 * entry.correct / entry.judged:.0f} %)" if entry.judged else ""
    return OperatorLine(
        operator=entry.operator,
        proposals=entry.proposals,
        correct=f"{entry.correct:,}{share}",
        archived=entry.archived,
        path_steps=entry.path_steps,
        gain=ratio_text(entry.path_gain.value) if entry.path_gain else "",
        gain_span=span_text(entry.path_gain) if entry.path_gain else "",
        device_time=duration_text(entry.device_time_s),
    )


def budget_lines(facts: RunFacts) -> list[BudgetLine]:
    """The run's use of resources, beside the limits of its configuration."""
    progress = facts.progress
    used = {
        "evaluations": f"{progress.evaluations:,}",
        "stagnation": f"{progress.evaluations - progress.evaluations_at_best:,}",
        "proposals": f"{progress.proposals:,}",
        "tunings": f"{progress.tunings:,}",
        "screens": f"{progress.screens:,}",
        "wall_time": duration_text(progress.wall_time_s),
        "device_time": duration_text(progress.device_time_s),
        "tokens": f"{progress.tokens:,}",
        "usd": "unknown" if progress.usd is None else f"{progress.usd:.2f}",
    }
    return [
        BudgetLine(name=_BUDGETS[name], used=value, limit=_limit(facts.run.config, name))
        for name, value in used.items()
    ]


def _limit(config: Mapping[str, Any], name: str) -> str:
    value = (config.get("termination") or {}).get(name)
    if value is None:
        return ""
    return duration_text(parse_duration(value)) if name.endswith("_time") else f"{value:,}"


def key_facts(facts: RunFacts) -> list[tuple[str, str]]:
    """The few numbers that stand under the headline."""
    progress = facts.progress
    judged = [step for step in facts.proposals if step.status is not None]
    correct = sum(1 for step in judged if step.status is Status.CORRECT and step.custom)
    found = [
        ("Hardware", facts.hardware or "unknown"),
        ("Evaluations", f"{progress.evaluations:,} in full"),
        ("Correct", f"{correct:,} of {len(judged):,}" if judged else "none yet"),
        ("Search time", duration_text(progress.wall_time_s)),
    ]
    if progress.tokens:
        price = "price unknown" if progress.usd is None else f"{progress.usd:.2f} USD"
        found.append(("Models", f"{count_text(progress.tokens, 'token')}, {price}"))
    if facts.run.reason:
        found.append(("Ended", facts.run.reason))
    return found
