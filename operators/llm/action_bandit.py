"""A run's own evidence on the kinds of step: MTMC's reward ladder, and UCB1 over it."""

import math
import re
from collections.abc import Mapping, Sequence

from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Ratio
from evolve.core.protocols import Attempt, Context

_TYPE = re.compile(r"(\w+) of ")
_NOT_BUILT = frozenset({Status.INVALID_INTERFACE, Status.COMPILE_ERROR})


def reward(attempt: Attempt, parent: Ratio | None) -> float:
    """The reward of a step (QiMeng-Kernel, arXiv 2511.20100, figure; without its decay).

    -1 if it does not compile (or no program came of it), 0.1 - 0.5 if it compiles and fails, 0.1 +
    0.5 if it is right, and 1 more if it is also faster than its parent, by intervals that do not
    overlap.
    """
    if attempt.program is None or attempt.status in _NOT_BUILT:
        return -1.0
    if attempt.status is not Status.CORRECT:
        return 0.1 - 0.5
    faster = attempt.ratio is not None and parent is not None and attempt.ratio.low > parent.high
    return 0.1 + 0.5 + faster


def past_rewards(context: Context, operator: str, window: int) -> dict[str, list[float]]:
    """Rewards by type of action, of an operator's newest steps whose notes begin with the type."""
    parents: dict[str, Ratio | None] = {}
    found: dict[str, list[float]] = {}
    for attempt in context.facts.recent(window, operator=operator):
        named = _TYPE.match(attempt.note or attempt.failure)
        if named is None or not attempt.parents or attempt.status is Status.INFRA:
            continue
        parent = attempt.parents[0]
        if parent not in parents:
            parents[parent] = _best(context, parent)
        found.setdefault(named[1], []).append(reward(attempt, parents[parent]))
    return found


def most_promising(context: Context, kinds: Sequence[str], window: int) -> set[str]:
    """The types with the highest bound, by the newest steps of the operator that asks."""
    bounds = upper_bounds(past_rewards(context, context.operator, window), sorted({*kinds}))
    best = max(bounds.values())
    return {kind for kind, bound in bounds.items() if bound == best}


def _best(context: Context, program: str) -> Ratio | None:
    """The best full measurement of a program."""
    ratios = [
        trial.ratio
        for trial in context.facts.trials(program)
        if trial.ratio is not None and trial.fidelity is Fidelity.SEARCH
    ]
    return max(ratios, key=lambda ratio: ratio.value, default=None)


def upper_bounds(rewards: Mapping[str, Sequence[float]], arms: Sequence[str]) -> dict[str, float]:
    """UCB1 (Auer et al. 2002) of each arm; infinite for one that was never tried.

    Rewards lie between -1 and 1.6, so the bonus is scaled by half that range.
    """
    total = sum(len(rewards.get(arm, ())) for arm in arms)
    return {arm: _bound(rewards.get(arm, ()), total) for arm in arms}


def _bound(seen: Sequence[float], total: int) -> float:
    if not seen:
        return math.inf
    return math.fsum(seen) / len(seen) + 1.3 * math.sqrt(2 * math.log(total) / len(seen))
