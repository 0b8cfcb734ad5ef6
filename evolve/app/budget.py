"""The likely result of a budget, shown before it is spent."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from evolve.app.models import has_model
from evolve.core.devices import device_kind
from evolve.report.text import count_text
from evolve.search.execution.reserve import VERIFICATION
from evolve.search.termination import format_duration, parse_duration

ENOUGH = 10  # evaluations; with fewer a search hardly gets beyond the programs that it starts from
USUAL = 60  # evaluations that are suggested
DEFAULT_STAGNATION = 60  # `termination.stagnation` of conf/termination/default.yaml
START_S = 10.0  # of the judge, with the audit of the task
HASTE_S = 300.0  # of a run: with less, a model has hardly time to propose


def budget_notes(config: Mapping[str, Any], kind: str) -> Iterator[str]:
    """A line for each limit that buys fewer than ten evaluations, with one that buys them.

    Args:
        config: of a new run.
        kind: of the device, `cpu` or `cuda`.
    """
    limits = config["termination"]
    for name in ("evaluations", "proposals"):
        if limits[name] is not None and limits[name] < ENOUGH:
            yield (
                f"termination.{name}={limits[name]}: a search needs ten evaluations or more to get "
                f"beyond the programs it starts from; take e.g. termination.{name}={USUAL}"
            )
    if limits["wall_time"] is not None:
        yield from _wall_time_notes(config, device_kind(kind).evaluation_s)
    yield from stagnation_notes(config)


def stagnation_notes(config: Mapping[str, Any]) -> Iterator[str]:
    """A line if the run's limits end it before `termination.stagnation` can.

    The default value is exempt: it is meant for longer runs.
    """
    limits = config["termination"]
    stagnation = limits["stagnation"]
    if stagnation is None or stagnation == DEFAULT_STAGNATION:
        return
    for name in ("evaluations", "proposals"):
        if limits[name] is not None and limits[name] <= stagnation:
            yield (
                f"termination.stagnation={stagnation} has no effect: the run ends before, by "
                f"termination.{name}={limits[name]}; lower it, or raise the limit"
            )


def run_s(config: Mapping[str, Any], kind: str) -> float:
    """About how long a run takes by its limits, with its verification; infinite if none tells.

    A limit on wall time includes the verification; the others are counted in usual evaluations.
    """
    limits, each_s = config["termination"], device_kind(kind).evaluation_s
    counts = [limits[name] for name in ("evaluations", "proposals") if limits[name] is not None]
    found = [each_s * (count + VERIFICATION) for count in counts]
    if limits["wall_time"] is not None:
        found.append(parse_duration(limits["wall_time"]))
    return min(found, default=math.inf)


def _wall_time_notes(config: Mapping[str, Any], each_s: float) -> Iterator[str]:
    limit = config["termination"]["wall_time"]
    bought = math.floor((parse_duration(limit) - START_S) / each_s - VERIFICATION)
    if bought < ENOUGH:
        enough_s = START_S + each_s * (ENOUGH + VERIFICATION)
        enough = format_duration(60 * math.ceil(enough_s / 60))
        few = f"about {count_text(bought, 'evaluation')}" if bought > 0 else "hardly an evaluation"
        yield (
            f"termination.wall_time={limit} buys {few} beside the audit and the verification of "
            f"the winner; termination.wall_time={enough} buys ten"
        )
    is_asked_later = has_model(config) and not config["agent"]["command"]
    if is_asked_later and parse_duration(limit) < HASTE_S:
        yield (
            f"termination.wall_time={limit}: programs to start from are judged first, so that few "
            "of a model's will be; more time helps, e.g. termination.wall_time=10m"
        )
