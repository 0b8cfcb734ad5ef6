"""Turn-level leave-one-out advantages (TRLOO) and mismatch rejection sampling (MRS).

Both are those of Dr. Kernel (arXiv 2602.05885; KernelGYM, `core_algos.py`, `mismatch_helper.py`).
A turn is a run of tokens that the model wrote, a run of ones in the mask. Needs torch only.
"""

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Scores = Sequence[float | None]
"""Of the turns of one rollout, in order; None for a turn that brought nothing to score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """How far the trained model may be from the one that sampled, before a rollout is rejected.

    Attributes:
        low: the least geometric mean of the tokens' ratios of probability, training over sampling.
        high: the greatest.
        veto: a single token with a ratio below it rejects the rollout.
    """

    low: float = 0.999
    high: float = 1.001
    veto: float = 1e-4

    def keeps(self, training: Tensor, sampling: Tensor, mask: Tensor) -> Tensor:
        """Which rollouts are trained on.

        Args:
            training: log-probabilities of the tokens under the trained model, [rows, tokens].
            sampling: of the same tokens when they were sampled; NaN for those not known.
            mask: 1 for tokens that the model wrote, [rows, tokens].

        Returns:
            One flag for each row; True if no token of it is known on both sides.
        """
        known = mask.bool() & sampling.isfinite() & training.isfinite()
        logs = torch.where(known, training - sampling, 0.0)
        mean = logs.sum(dim=-1) / known.sum(dim=-1).clamp(min=1)
        inside = (mean >= math.log(self.low)) & (mean <= math.log(self.high))
        return inside & (logs >= math.log(self.veto)).all(dim=-1)


def trloo(
    rollouts: Sequence[Scores], groups: Sequence[Hashable], gamma: float = 1.0
) -> list[list[float]]:
    """The advantage of every turn: its return minus the mean of the others' at the same turn.

    A return is the discounted sum of the scores of this and all later turns. The others are of the
    same group and at the same turn. If there are none, the return is the advantage. A rollout with
    a score that is not finite is in no mean, and its advantages are 0. The same holds for a turn
    without a score, but later scores of its rollout still count for the turns before it.

    Args:
        rollouts: the scores of each one's turns.
        groups: the prompt that each rollout answers.
        gamma: discount of each later turn.
    """
    returns = [_returns(scores, gamma) for scores in rollouts]
    members: dict[tuple[Hashable, int], list[float]] = {}
    for group, found in zip(groups, returns, strict=True):
        for turn, value in enumerate(found):
            if value is not None:
                members.setdefault((group, turn), []).append(value)
    return [
        [
            0.0 if value is None else _beside(value, members[group, turn])
            for turn, value in enumerate(found)
        ]
        for group, found in zip(groups, returns, strict=True)
    ]


def _returns(scores: Scores, gamma: float) -> list[float | None]:
    if not all(score is None or math.isfinite(score) for score in scores):
        return [None] * len(scores)
    ahead, found = 0.0, list[float | None]()
    for score in reversed(scores):
        ahead = (score or 0.0) + gamma * ahead
        found.append(None if score is None else ahead)
    return found[::-1]


def _beside(value: float, members: Sequence[float]) -> float:
    others = len(members) - 1
    return value - (math.fsum(members) - value) / others if others else value


def turns_of(mask: Tensor) -> list[list[tuple[int, int]]]:
    """The runs of ones of every row of a mask, as places of the first token and after the last."""
    return [_runs(row) for row in mask.tolist()]


def _runs(row: Sequence[float]) -> list[tuple[int, int]]:
    place, found = 0, []
    for wrote, tokens in itertools.groupby(row, key=bool):
        length = len(list(tokens))
        if wrote:
            found.append((place, place + length))
        place += length
    return found


def spread(advantages: Sequence[Sequence[float]], mask: Tensor) -> Tensor:
    """Advantages of turns as those of their tokens, 0 elsewhere, [rows, tokens].

    Raises:
        ValueError: a row has another number of turns than of advantages.
    """
    found = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    for row, (values, places) in enumerate(zip(advantages, turns_of(mask), strict=True)):
        if places and len(places) != len(values):
            raise ValueError(
                f"row {row} has {len(places)} turns and scores for {len(values)} of them"
            )
        for value, (start, end) in zip(values, places, strict=False):
            found[row, start:end] = value
    return found


def turn_scores(token_level_rewards: Tensor, mask: Tensor) -> list[list[float]]:
    """The sum of the rewards of every turn's tokens."""
    return [
        [float(rewards[start:end].sum()) for start, end in places]
        for rewards, places in zip(token_level_rewards, turns_of(mask), strict=True)
    ]
