"""`evolve run ... --dry-run`: the likely result of the budget, without touching the runs' file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolve.app.database import location_of
from evolve.app.device import start_evaluator
from evolve.app.estimate.llm_probe import (
    FILE,
    CallForecast,
    Sample,
    call_lines,
    forecast,
    sample_calls,
)
from evolve.app.frontend import Frontend
from evolve.app.models import WHY_IDLE, idle_limits, key_notes
from evolve.app.text import interval_text
from evolve.app.validation import read_request
from evolve.core.errors import UsageError
from evolve.core.measurement import Interval
from evolve.core.task import Task
from evolve.evaluation import PooledEvaluator
from evolve.report.audit import Findings, weakness
from evolve.report.text import count_text, duration_text
from evolve.search.termination import parse_duration
from evolve.store.location import folder_of

Calls = tuple[Sequence[Sample], int]
"""Sample proposals, and how many calls may be under way at once."""


async def dry_run(config: Mapping[str, Any], frontend: Frontend) -> None:
    """Audit the task, time the reference against itself, and forecast the budget's result.

    If models are configured, each is really asked for one proposal.

    Raises:
        UsageError: everything that a run would refuse, and a device that measures nothing.
    """
    request = read_request(config)
    task = request.task
    for note in key_notes(request.recorded):
        frontend.say(note)
    with frontend.doing("starting the judge", plain=False):
        evaluator = await start_evaluator(config)
    try:
        if not isinstance(evaluator, PooledEvaluator):
            raise UsageError("--dry-run measures, and device=replay does not; take device=auto")
        frontend.say(
            f"task        {task.name}, size {task.size}, {count_text(len(task.seeds), 'seed')}"
        )
        frontend.say(f"judge       {evaluator.device_class}, {count_text(evaluator.slots, 'slot')}")
        with frontend.doing(f"auditing the task {task.name}"):
            findings = await evaluator.audit(task)
            conditions = await evaluator.conditions(task)
        for line in conditions:
            frontend.say(f"judged      {line}")
        for line in audit_lines(task, findings):
            frontend.say(line)
        with frontend.doing("timing the reference against itself"):
            noise = await evaluator.noise(task)
        calls = await sample_calls(request.recorded, task, evaluator)
        devices = evaluator.devices
    finally:
        await evaluator.close()
    for line in forecast_lines(config["termination"], noise, calls, devices):
        frontend.say(line)
    if calls is not None:
        path = folder_of(location_of(config)) / FILE
        frontend.say(
            f"calls       kept in {path}; `evolve cost --store {path}` says what they cost"
        )
    for name in idle_limits(config):
        frontend.say(f"limit       {name} has no effect: {WHY_IDLE}")


def audit_lines(task: Task, findings: Findings) -> Iterator[str]:
    """The audit's findings, in words."""
    if findings:
        yield (
            f"audit       {task.name} is WEAK: {weakness(findings)}; being correct means little, "
            "and no result counts as strict, until the task is repaired"
        )
    else:
        yield f"audit       {task.name} is sound: nothing that computes nothing passes its check"


def forecast_lines(
    termination: Mapping[str, Any],
    noise: Mapping[str, Any],
    calls: Calls | None = None,
    devices: int = 1,
) -> Iterator[str]:
    """The reference's time, the noise floor, and the first limit to be reached, and its cost.

    Args:
        termination: limits by name.
        noise: the judge's measurement of the reference.
        calls: the models' costs; None without models.
        devices: how many evaluate at once, each of them as fast as the one that was measured.
    """
    each_s, timed_s = noise["seconds_per_evaluation"], noise["device_seconds_per_evaluation"]
    yield f"reference   {interval_text(Interval(*noise['reference_ms']))} per call, all timed cases"
    yield (
        f"noise       ± {100 * noise['half_width']:.1f} %: the reference timed against itself; "
        "smaller gains do not show"
    )
    at_once = f", on {devices} devices at once" if devices > 1 else ""
    yield (
        f"evaluation  about {duration_text(each_s)} each, the check of a correct program included, "
        f"{duration_text(timed_s)} of it device time{at_once}"
    )
    call = None
    if calls is not None:
        yield from call_lines(calls[0])
        call = forecast(*calls)
    pace_s = _candidate_s(each_s, call, devices)
    ends = dict(limits_s(termination, timed_s, pace_s, call))
    for name, seconds in ends.items():
        limit = termination[name]
        if isinstance(limit, Mapping):
            limit = " and ".join(f"{part}={limit[part]}" for part in limit if limit[part])
        yield f"limit       {name}={limit}: {_bought(seconds, seconds / pace_s, timed_s, call)}"
    if ends:
        yield f"first       {min(ends, key=lambda name: ends[name])} comes first"


def _bought(seconds: float, candidates: float, timed_s: float, call: CallForecast | None) -> str:
    """The result of a given time if every call gives a program that is judged in full."""
    text = f"about {duration_text(seconds)}, {count_text(int(candidates), 'evaluation')}"
    if call is None:
        return text
    usd = "at an unknown cost" if call.usd is None else f"{candidates * call.usd:.2f} USD"
    device = duration_text(candidates * timed_s)
    return f"{text}, {device} of device time, {candidates * call.tokens:,.0f} tokens, {usd}"


def _candidate_s(each_s: float, call: CallForecast | None, devices: int) -> float:
    """Seconds per candidate: the judges', or those of the models if they are slower."""
    judged_s = each_s / devices
    return judged_s if call is None else max(judged_s, call.seconds / call.slots)


def limits_s(
    termination: Mapping[str, Any], timed_s: float, pace_s: float, call: CallForecast | None = None
) -> Iterator[tuple[str, float]]:
    """Seconds until each limit that can be foreseen.

    A candidate comes every `pace_s` and takes `timed_s` of device time.
    """
    for name, limit in termination.items():
        if limit is None:
            continue
        if name in ("evaluations", "proposals"):
            yield name, limit * pace_s
        elif name == "wall_time":
            yield name, parse_duration(limit)
        elif name == "device_time":
            yield name, parse_duration(limit) * pace_s / timed_s
        elif name == "usd" and call and call.usd:
            yield name, limit / call.usd * pace_s
        elif name == "tokens" and call and call.tokens:
            yield name, limit / call.tokens * pace_s
        elif isinstance(limit, Mapping):
            ahead = dict(limits_s(limit, timed_s, pace_s, call))
            if ahead and len(ahead) == sum(part is not None for part in limit.values()):
                yield name, max(ahead.values())
