"""Which limit a run reaches first, and when, at the pace it has had."""

from collections.abc import Mapping
from typing import Any

from evolve.report.text import duration_text

# These cannot be foreseen: the first starts again with every gain, the others depend on luck.
UNFORESEEN = ("stagnation", "target_speedup", "speed_of_light", "all_of", "stop")


def budgets(usage: Mapping[str, float]) -> dict[str, float]:
    """The shares of a termination rule's `usage` that only grow, so that they can be foreseen."""
    return {name: share for name, share in usage.items() if name not in UNFORESEEN}


def first_limit(usage: Mapping[str, float], active_s: float) -> tuple[str, float] | None:
    """The budget that is used up first and in how many seconds; None if nothing is used yet."""
    ahead = [
        (active_s * (1 - share) / share, name)
        for name, share in budgets(usage).items()
        if share > 0
    ]
    if not ahead:
        return None
    left_s, name = min(ahead)
    return name, left_s


def forecast_text(usage: Mapping[str, float], active_s: float) -> str:
    """`wall_time comes first, in about 1 min 5 s`."""
    ahead = first_limit(usage, active_s)
    if ahead is None:
        return "not known yet"
    name, left_s = ahead
    if left_s < 1:
        return f"{name} is used up: what is under way ends, then the best is verified"
    return f"{name} comes first, in about {duration_text(left_s)}"


def used_text(termination: Mapping[str, Any], usage: Mapping[str, float]) -> str:
    """`evaluations 20 % of 60, wall_time 35 % of 2m`."""
    return ", ".join(
        f"{name} {100 * share:.0f} % of {termination[name]}"
        for name, share in budgets(usage).items()
    )
