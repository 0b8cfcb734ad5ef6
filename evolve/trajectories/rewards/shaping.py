"""From scores of steps to a trainer's values: returns, advantages, and exclusions.

A search is a tree: `Tree` says which step each one goes on from, and which answered one prompt.
None is a score that is not known: it enters no sum and no mean, and stays None.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

Scores = Sequence[float | None]

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Tree:
    """How steps hang together, by their places in a list that is ordered as they were made.

    Attributes:
        parents: place of the step that each goes on from, always an earlier one; -1 for none.
        groups: a number that steps share which answered the same prompt.
    """

    parents: Sequence[int]
    groups: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """A pinned function of all scores of a run, such as `trloo@2`."""

    name: str
    source: str
    apply: Callable[[Scores, Tree], list[float | None]]


def discounted(scores: Scores, tree: Tree, gamma: float) -> list[float | None]:
    """Each score plus the discounted return of the best continuation.

    On a single line of turns that is the discounted sum over this and all later turns.
    """
    best: list[float | None] = [None] * len(scores)  # return of the best step that goes on
    returns: list[float | None] = [None] * len(scores)
    for place in range(len(scores) - 1, -1, -1):
        score, ahead, parent = scores[place], best[place], tree.parents[place]
        if score is None and ahead is None:
            continue
        total = (score or 0.0) + gamma * (ahead or 0.0)
        if score is not None:
            returns[place] = total
        if parent >= 0:
            known = best[parent]
            best[parent] = total if known is None else max(known, total)
    return returns


def trloo(scores: Scores, tree: Tree) -> list[float | None]:
    """Score minus the mean of the others at the same turn; as it is if there are none.

    Rollouts that began with the same prompt, or from the same program, are one group at each turn
    (KernelGYM, `core_algos.py`, `compute_multi_turn_rloo_outcome_advantage`). The mean of plain
    GRPO holds the sample itself, which shrinks its gradient by 1 - 1/N.
    """
    turns = Tree(tree.parents, _turns(tree))
    members = _members(scores, turns)
    sums = {group: math.fsum(of_group) for group, of_group in members.items()}

    def shape(score: float, group: int) -> float:
        others = len(members[group]) - 1
        return score - (sums[group] - score) / others if others else score

    return _each(scores, turns, shape)


def _turns(tree: Tree) -> list[int]:
    """A number that steps share which are the same turn of rollouts that began alike."""
    begun: list[tuple[int, int]] = []  # group of the first step, and steps since
    for parent, group in zip(tree.parents, tree.groups, strict=True):
        first, turn = begun[parent] if parent >= 0 else (group, -1)
        begun.append((first, turn + 1))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(begun))}
    return [numbers[key] for key in begun]


def grpo(scores: Scores, tree: Tree) -> list[float | None]:
    """Score minus its group's mean, over the standard deviation (N - 1); a lone score as it is."""
    members = _members(scores, tree)
    means = {group: statistics.fmean(of_group) for group, of_group in members.items()}
    spreads = {
        group: statistics.stdev(of_group)
        for group, of_group in members.items()
        if len(of_group) > 1
    }

    def shape(score: float, group: int) -> float:
        if group not in spreads:
            return score
        return (score - means[group]) / (spreads[group] + _EPSILON)

    return _each(scores, tree, shape)


def smoothed(scores: Scores, tree: Tree, limit: float) -> list[float | None]:
    """Distance from the group's mean in its standard deviations (N), clipped at `limit`."""
    members = _members(scores, tree)
    means = {group: statistics.fmean(of_group) for group, of_group in members.items()}
    spreads = {group: statistics.pstdev(of_group) for group, of_group in members.items()}

    def shape(score: float, group: int) -> float:
        if not spreads[group]:
            return 0.0
        return max(-limit, min(limit, (score - means[group]) / spreads[group]))

    return _each(scores, tree, shape)


def keep_probability(
    coverage: float | None, *, correct: bool, threshold: float = 0.3, width: float = 0.1
) -> float | None:
    """Profiling-based rejection sampling: how likely a turn is to be kept for training.

    Nothing up to `threshold`, all from `threshold + width` on, linear between; wrong turns are
    always kept (Dr. Kernel, arXiv 2602.05885).

    Args:
        coverage: share of device time in the candidate's own kernels.
        correct: whether the turn's program is.
        threshold: where keeping begins.
        width: of the linear part.

    Returns:
        None for a correct turn whose coverage is unknown.
    """
    if not correct:
        return 1.0
    return None if coverage is None else min(max((coverage - threshold) / width, 0.0), 1.0)


def keeps_match(
    training: Sequence[float] | None,
    rollout: Sequence[float] | None,
    *,
    low: float = 0.999,
    high: float = 1.001,
    veto: float = 1e-4,
) -> bool | None:
    """Mismatch rejection sampling: whether a sequence is kept (Dr. Kernel, arXiv 2602.05885).

    Args:
        training: log-probabilities of the tokens under the model that is trained.
        rollout: of the same tokens when they were sampled (`ModelReply.trace.logprobs`).
        low: the least geometric mean of the tokens' ratios, training over rollout.
        high: the greatest.
        veto: a single token with a ratio below it rejects the sequence.

    Returns:
        None if either is not known.

    Raises:
        ValueError: they differ in length.
    """
    if not training or not rollout:
        return None
    ratios = [ours - theirs for ours, theirs in zip(training, rollout, strict=True)]
    inside = math.log(low) <= statistics.fmean(ratios) <= math.log(high)
    return inside and min(ratios) >= math.log(veto)


def _members(scores: Scores, tree: Tree) -> dict[int, list[float]]:
    members: dict[int, list[float]] = {}
    for score, group in zip(scores, tree.groups, strict=True):
        if score is not None:
            members.setdefault(group, []).append(score)
    return members


def _each(scores: Scores, tree: Tree, shape: Callable[[float, int], float]) -> list[float | None]:
    return [
        None if score is None else shape(score, group)
        for score, group in zip(scores, tree.groups, strict=True)
    ]


_DR_KERNEL = "Dr. Kernel, arXiv 2602.05885"

SHAPINGS = (
    Shaping(
        name="discounted@1",
        source="Kevin, arXiv 2507.11948, section 4.3: a sum with a factor of 0.4",
        apply=partial(discounted, gamma=0.4),
    ),
    Shaping(name="return@1", source=_DR_KERNEL, apply=partial(discounted, gamma=1.0)),
    Shaping(name="trloo@2", source=_DR_KERNEL, apply=trloo),
    Shaping(name="grpo@1", source="DeepSeekMath, arXiv 2402.03300, as verl has it", apply=grpo),
    Shaping(
        name="smoothed@1",
        source="CUDA-L1, arXiv 2507.14111: clipped at 1.5",
        apply=partial(smoothed, limit=1.5),
    ),
)
