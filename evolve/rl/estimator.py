"""verl's estimators that leave masked rows out. Needs torch and nothing else."""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from evolve.rl.masking import MAX_MASKED, MAX_UNSCORED, MaskedRows
from evolve.rl.turns import spread, trloo, turn_scores

NO_VERDICT = math.nan
"""Score of a row that our own side failed to judge."""

NO_SCORE = math.inf
"""Score of a row whose verdict does not give one."""

_EPSILON = 1e-6


def masked_grpo(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[Hashable],
    config: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """GRPO's advantages (arXiv 2402.03300), with groups as if masked rows had not been sampled.

    Masked are rows with the score `NO_VERDICT` or `NO_SCORE`, and those none of whose tokens is
    trained on. They get the advantage 0, and both tensors are cleared of them in place, so that no
    later step of the trainer meets a NaN or trains on them. The signature is that of verl's
    estimators.

    Args:
        token_level_rewards: a row's score is their sum, [rows, tokens].
        response_mask: 1 for trained tokens, [rows, tokens].
        index: of the prompt that each row answers.
        config: `norm_adv_by_std_in_grpo` as in verl (default: true), `most_masked` and
            `most_unscored`.

    Returns:
        Advantages and returns, which are the same, [rows, tokens].

    Raises:
        TooManyMasked: more rows of the batch have no verdict than `most_masked`, by default 1 %,
            or no score than `most_unscored`, by default half of them.
    """
    options = config if config is not None else {}
    with torch.no_grad():
        masked = _mask(token_level_rewards, response_mask, options)
        scores = token_level_rewards.sum(dim=-1)
        advantages = torch.zeros_like(scores)
        for rows in _groups(index, masked):
            group = scores[rows]
            centred = group - group.mean() if len(rows) > 1 else group
            if len(rows) > 1 and options.get("norm_adv_by_std_in_grpo", True):
                centred = centred / (group.std() + _EPSILON)
            advantages[rows] = centred
        per_token = advantages.unsqueeze(-1) * response_mask
    return per_token, per_token


def masked_trloo(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[Hashable],
    config: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Turn-level leave-one-out advantages (`evolve.rl.turns.trloo`), without masked rows.

    As `masked_grpo`, but a row has a score for every turn: the sum of the rewards of its tokens.
    Rows that verl's own rejection has taken out of the response mask are in no mean.

    Args:
        token_level_rewards: a turn's score on its last token, [rows, tokens].
        response_mask: 1 for trained tokens, [rows, tokens].
        index: of the prompt that each row answers.
        config: `gamma` as in verl (default: 1), `most_masked` and `most_unscored`.

    Returns:
        Advantages twice, [rows, tokens].

    Raises:
        TooManyMasked: as `masked_grpo`.
    """
    options = config if config is not None else {}
    with torch.no_grad():
        _mask(token_level_rewards, response_mask, options)
        scores = turn_scores(token_level_rewards, response_mask)
        advantages = trloo(scores, index, float(options.get("gamma", 1.0)))
        per_token = spread(advantages, response_mask)
    return per_token, per_token


def _mask(token_level_rewards: Tensor, response_mask: Tensor, options: Any) -> Tensor:
    """Clear both tensors of rows without a score, in place; returns which rows are masked."""
    scores = token_level_rewards.sum(dim=-1)
    failed = scores.isnan()
    masked = ~scores.isfinite() | (response_mask.sum(dim=-1) == 0)
    limits = options.get("most_masked", MAX_MASKED), options.get("most_unscored", MAX_UNSCORED)
    MaskedRows(*limits).count(
        len(scores), infra_masked=int(failed.sum()), unscored=int(scores.isinf().sum())
    )
    token_level_rewards[masked] = 0.0
    response_mask[masked] = 0
    return masked


def _groups(index: Sequence[Hashable], masked: Tensor) -> list[list[int]]:
    """The rows that are not masked, by the prompt that they answer."""
    groups: dict[Hashable, list[int]] = {}
    for row, prompt in enumerate(index):
        if not masked[row]:
            groups.setdefault(prompt, []).append(row)
    return list(groups.values())
