"""The report's tables: cases, funnel, operators, budget, machine, configuration, commands."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import Step
from evolve.core.measurement import Ratio
from evolve.report.facts import RunFacts
from evolve.report.lineage import Contribution, operator_contribution, speedup
from evolve.report.text import (
    baseline_name,
    count_text,
    duration_text,
    ratio_text,
    span_text,
    time_text,
)

MAX_CONFIG_LINES = 400
MAX_VALUE = 400
_DEFAULT_STORE = "runs/evolve.db"
_DEFAULTS = {"precision": "task", "accumulation": "ieee"}
_SECRET = re.compile(r"(^|_)(api_?key|key|token|secret|password|credentials?)$", re.IGNORECASE)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A rung of the funnel: how many proposals reached it, and how the others fell off before."""

    name: str
    count: int
    share: float
    lost: str


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
    """What was used of something, and its limit (empty: none)."""

    name: str
    used: str
    limit: str


def case_lines(facts: RunFacts) -> list[CaseLine]:
    """The champion's cases, and the weighted total where there are several timed ones."""
    if facts.champion is None:
        return []
    baseline, cases = facts.baseline, facts.champion.evaluation.cases
    timed = [case.ratios[baseline] for case in cases if baseline in case.ratios]
    axis = [*timed, facts.champion.ratio]
    lines = [
        _case_line(
            case.name, f"{case.weight:g}", case.times_ms, case.ratios.get(baseline), baseline, axis
        )
        for case in cases
    ]
    if len(timed) > 1:
        total = facts.champion.ratio
        lines.append(_case_line("all, weighted", "", {}, total, baseline, axis))
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


_BUDGETS = {
    "evaluations": "full evaluations",
    "stagnation": "evaluations since a clear gain",
    "proposals": "proposals",
    "screens": "cheap screens",
    "wall_time": "search time",
    "device_time": "device time",
    "tokens": "model tokens",
    "usd": "model cost, USD",
}
_RUNGS: tuple[tuple[str, frozenset[Status]], ...] = (
    ("honours the contract", frozenset({Status.CONTRACT})),
    ("compiles", frozenset({Status.COMPILE_ERROR})),
    (
        "runs to its end",
        frozenset(
            {
                Status.RUNTIME_EXCEPTION,
                Status.ILLEGAL_ACCESS,
                Status.ASSERT,
                Status.OOM,
                Status.TIMEOUT,
                Status.KILLED,
            }
        ),
    ),
    (
        "gives the right output",
        frozenset(
            {
                Status.WRONG_TREE,
                Status.WRONG_SHAPE,
                Status.WRONG_DTYPE,
                Status.WRONG_VALUE,
                Status.NONDETERMINISTIC,
            }
        ),
    ),
    ("plays fair", frozenset({Status.MUTATED_INPUT, Status.ALIASED, Status.HACK})),
    ("can be timed", frozenset({Status.TIMING_UNBOUNDED})),
)


def funnel(facts: RunFacts) -> list[Rung]:
    """How far proposals came, screens included; each rung says what ended the others' way."""
    left = list(facts.proposals)
    total = len(left) or 1
    rungs = [_rung("asked for", left, total, {})]

    def descend(name: str, kept: list[Step], lost: Mapping[str, int]) -> None:
        nonlocal left
        left = kept
        rungs.append(_rung(name, left, total, lost))

    made = [step for step in left if step.program is not None]
    descend("gave a new program or instance", made, {"no program": len(left) - len(made)})
    judged = [step for step in left if step.status not in (None, Status.INFRA)]
    if len(judged) < len(left):
        descend("was judged", judged, {"not judged": len(left) - len(judged)})
    for name, ends in _RUNGS:
        lost = Counter(str(step.status) for step in left if step.status in ends)
        if lost or name in ("compiles", "runs to its end", "gives the right output"):
            descend(name, [step for step in left if step.status not in ends], lost)
    custom = [step for step in left if step.custom]
    descend("by a kernel of its own", custom, {"not custom": len(left) - len(custom)})
    faster = [step for step in left if (r := speedup(step, facts.baseline)) and r.is_gain]
    screened = sum(1 for step in left if step.fidelity is Fidelity.SCREEN)
    slow = len(left) - len(faster) - screened
    descend(
        f"faster than {baseline_name(facts.baseline)}",
        faster,
        {"screened only": screened, "without a measurable gain": slow},
    )
    return rungs


def _rung(name: str, steps: Sequence[Step], total: int, lost: Mapping[str, int]) -> Rung:
    reasons = sorted(((count, reason) for reason, count in lost.items() if count), reverse=True)
    return Rung(
        name=name,
        count=len(steps),
        share=round(100 * len(steps) / total, 1),
        lost=", ".join(f"{count:,} {reason.replace('_', ' ')}" for count, reason in reasons),
    )


def operator_lines(facts: RunFacts) -> list[OperatorLine]:
    """What each operator did and gave."""
    champion = facts.champion.sequence if facts.champion else None
    found = operator_contribution(facts.steps, facts.baseline, champion)
    return [_operator_line(entry) for entry in found]


def _operator_line(entry: Contribution) -> OperatorLine:
    judged = entry.proposals - entry.failed
    share = f" ({100 * entry.correct / judged:.0f} %)" if judged else ""
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
    """What the run has used, beside the limits that its configuration sets."""
    progress = facts.progress
    used = {
        "evaluations": f"{progress.evaluations:,}",
        "stagnation": f"{progress.evaluations - progress.evaluations_at_best:,}",
        "proposals": f"{progress.proposals:,}",
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
    value = _at(config, f"termination.{name}")
    return "" if value is None else str(value)


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


def commands(facts: RunFacts) -> list[tuple[str, str]]:
    """What to type, with what it does."""
    run, store = shlex.quote(facts.run.name), _store_flag(facts.run.config)
    task = shlex.quote(str(facts.run.config.get("task", facts.run.task.name)))
    found = []
    if facts.champion:
        step = shlex.quote(f"{facts.run.name}:{facts.champion.sequence}")
        found = [
            ("Write the kernel as one file", f"evolve best {run} -o kernel.py{store}"),
            ("Judge that file again", f"evolve eval kernel.py --task {task} {_judged_as(facts)}"),
            ("A folder to judge elsewhere", f"evolve eval {step} --repro repro/{store}"),
        ]
    search = " ".join(["evolve run", *map(shlex.quote, _overrides(facts))])
    return [*found, ("Search again", search), ("Look at the run", f"evolve show {run}{store}")]


def _store_flag(config: Mapping[str, Any]) -> str:
    path = _at(config, "store.path")
    return f" --store {shlex.quote(str(path))}" if path and path != _DEFAULT_STORE else ""


def _judged_as(facts: RunFacts) -> str:
    task = facts.run.task
    return f"--size {task.size} --precision {task.precision} --accumulation {task.accumulation}"


def _overrides(facts: RunFacts) -> Iterator[str]:
    """The settings that decide most about a search; the whole configuration stands below them."""
    config, task = facts.run.config, facts.run.task
    yield f"task={config.get('task', task.name)}"
    yield f"seed={facts.run.seed}"
    yield f"task_config.size={task.size}"
    for name in ("precision", "accumulation"):
        if (value := getattr(task, name)) != _DEFAULTS[name]:
            yield f"task_config.{name}={value}"
    if facts.baseline != "eager":
        yield f"baseline={facts.baseline}"
    if initial := config.get("initial"):
        yield f"initial=[{','.join(map(str, initial))}]"
    limits = config.get("termination") or {}
    for name in sorted(limits):
        if limits[name] is not None and name != "stop_file":
            yield f"termination.{name}={limits[name]}"


def _at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def config_lines(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The configuration as dotted keys in order; values of secret keys are hidden."""
    lines = list(_flat(config, ""))
    cut = len(lines) - MAX_CONFIG_LINES
    return lines[:MAX_CONFIG_LINES] + ([("…", f"{cut:,} more")] if cut > 0 else [])


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value, key=str):
            yield from _flat(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, str) and value and _SECRET.search(name.rpartition(".")[2]):
        yield name, "(hidden)"
    else:
        yield name, str(value)[:MAX_VALUE]


def environment_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """The machine and the versions that the headline was measured with."""
    found = {key: str(value)[:MAX_VALUE] for key, value in facts.environment.items()}
    if facts.evaluation:
        found |= {
            "device class": facts.evaluation.device_class,
            "evaluator": facts.evaluation.evaluator_version,
        }
    return sorted(found.items())
