"""`evolve run ... --dry-run`: what the budget will buy here, without touching a database."""

from collections.abc import Iterator, Mapping
from typing import Any

from evolve.cli import parts
from evolve.cli.models import WHY_IDLE, idle_limits
from evolve.cli.request import read_request
from evolve.cli.text import interval_text
from evolve.core.errors import UsageError
from evolve.core.measurement import Interval
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from evolve.report.audit import Findings, weakness
from evolve.report.text import count_text, duration_text
from evolve.search.termination import parse_duration


async def dry_run(config: Mapping[str, Any]) -> int:
    """Audit the task, time the reference against itself, and say what the budget will buy.

    Raises:
        UsageError: everything that a run would refuse, and a device that measures nothing.
    """
    task = read_request(config).task
    evaluator = await parts.start_evaluator(config)
    try:
        if not isinstance(evaluator, LocalEvaluator):
            raise UsageError("--dry-run measures, and device=replay does not; take device=cpu")
        print(f"task        {task.name}, size {task.size}, {count_text(len(task.seeds), 'seed')}")
        print(f"judge       {evaluator.device_class}, {count_text(evaluator.slots, 'slot')}")
        print(f"auditing the task {task.name} ...", flush=True)
        for line in audit_lines(task, await evaluator.audit(task)):
            print(line)
        noise = await evaluator.noise(task)
    finally:
        await evaluator.close()
    for line in forecast_lines(config["termination"], noise):
        print(line)
    for name in idle_limits(config):
        print(f"limit       {name} has no effect: {WHY_IDLE}")
    return 0


def audit_lines(task: Task, findings: Findings) -> Iterator[str]:
    """What the audit found, in words."""
    if findings:
        yield (
            f"audit       {task.name} is WEAK: {weakness(findings)}; being correct means little, "
            "and no result counts as strict, until the task is repaired"
        )
    else:
        yield f"audit       {task.name} is sound: nothing that computes nothing passes its check"


def forecast_lines(termination: Mapping[str, Any], noise: Mapping[str, Any]) -> Iterator[str]:
    """The reference's time, the noise floor, and which limit comes first at what cost."""
    each_s = noise["seconds_per_evaluation"]
    yield f"reference   {interval_text(Interval(*noise['reference_ms']))} per call, all timed cases"
    yield (
        f"noise       ± {100 * noise['half_width']:.1f} %: the reference timed against itself; "
        "smaller gains do not show"
    )
    yield f"evaluation  about {duration_text(each_s)} each, the check of a correct program included"
    ends = dict(limits_s(termination, each_s))
    for name, seconds in ends.items():
        bought = count_text(int(seconds / each_s), "evaluation")
        limit = termination[name]
        if isinstance(limit, Mapping):
            limit = " and ".join(f"{part}={limit[part]}" for part in limit if limit[part])
        yield f"limit       {name}={limit}: about {duration_text(seconds)}, {bought}"
    if ends:
        yield f"first       {min(ends, key=lambda name: ends[name])} comes first"


def limits_s(termination: Mapping[str, Any], each_s: float) -> Iterator[tuple[str, float]]:
    """Seconds until each limit that can be foreseen, one evaluation after the other."""
    for name, limit in termination.items():
        if name in ("evaluations", "proposals") and limit is not None:
            yield name, limit * each_s
        elif name in ("wall_time", "device_time") and limit is not None:
            yield name, parse_duration(limit)
        elif isinstance(limit, Mapping):
            ahead = dict(limits_s(limit, each_s))
            if ahead and len(ahead) == sum(part is not None for part in limit.values()):
                yield name, max(ahead.values())
