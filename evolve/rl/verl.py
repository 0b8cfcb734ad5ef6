"""verl (0.9): an agent loop of several turns, a reward manager, and estimators that mask.

Import this module in every process of the trainer: `VERL_USE_EXTERNAL_MODULES=evolve.rl.verl`. It
registers the advantage estimators `evolve_grpo` (a score for each rollout) and `evolve_trloo` (one
for each turn, in verl's trainer v1), and the reward manager `evolve`. Mismatch rejection sampling
is verl's own, under `algorithm.rollout_correction`: `rollout_correction()` gives its values.

A row's `reward_model.ground_truth` is a JSON object with the fields of `POST /v1/jobs` that name a
task: `{"task": "rmsnorm", "baseline": "eager"}`. The server is `EVOLVE_SERVE_URL`, with the token
in `EVOLVE_SERVE_TOKEN` and the reward in `EVOLVE_REWARD`, unless the configuration says otherwise;
`EVOLVE_BASELINE` is the baseline of speedups, overriding that of rows.
"""

import functools
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.trainer.ppo.core_algos import register_adv_est
from verl.utils.profiler import simple_timer

from evolve.core.errors import UsageError
from evolve.rl.client import Client
from evolve.rl.estimator import NO_SCORE, NO_VERDICT, masked_grpo, masked_trloo
from evolve.rl.outcome import Outcome, fault_in, parent_of, worth_of
from evolve.rl.turns import Mismatch, turns_of

ESTIMATOR = "evolve_grpo"
TURN_ESTIMATOR = "evolve_trloo"
ESTIMATORS = (ESTIMATOR, TURN_ESTIMATOR)

register_adv_est(ESTIMATOR)(masked_grpo)
register_adv_est(TURN_ESTIMATOR)(masked_trloo)


def rollout_correction(limits: Mismatch | None = None) -> dict[str, str]:
    """Mismatch rejection sampling as verl's `algorithm.rollout_correction`.

    verl calls the geometric mean `seq_mean_k1`. The veto is the largest half of a squared log
    ratio, `seq_max_k2`, which also rejects a rollout for a token with a ratio above 1 / `veto`.
    """
    wanted = limits or Mismatch()
    veto = math.log(wanted.veto) ** 2 / 2
    return {
        "rollout_rs": "seq_mean_k1,seq_max_k2",
        "rollout_rs_threshold": f"{wanted.low}_{wanted.high},{veto:.4f}",
    }


@functools.cache
def client_of(url: str | None = None, reward: str | None = None) -> Client:
    """The client of this process for a server and a reward.

    Raises:
        UsageError: neither the configuration nor the environment names them.
    """
    server = url or os.environ.get("EVOLVE_SERVE_URL")
    wanted = reward or os.environ.get("EVOLVE_REWARD")
    if not server or not wanted:
        raise UsageError("EVOLVE_SERVE_URL and EVOLVE_REWARD: set both, e.g. to kevin@1")
    return Client(server, rewards=[wanted], baseline=os.environ.get("EVOLVE_BASELINE"))


def origin_of(ground_truth: Any) -> dict[str, Any]:
    """The task of a row's candidates.

    Raises:
        UsageError: its ground truth is not a JSON object.
    """
    found = json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth
    if not isinstance(found, Mapping):
        raise UsageError(
            f"reward_model.ground_truth={ground_truth!r}: it has to be a JSON object such as "
            '{"task": "rmsnorm"}; `evolve export --to verl-rl` writes it'
        )
    return dict(found)


def _require_estimator(config: Any, *accepted: str) -> str:
    """The configured estimator. Raises UsageError if it is none of those accepted."""
    found: str = config.algorithm.adv_estimator
    if found not in accepted:
        raise UsageError(
            f"algorithm.adv_estimator={found}: it would count a row without a known "
            f"reward; set algorithm.adv_estimator={' or '.join(accepted)}"
        )
    return found


@register("evolve")
class EvolveRewardManager(RewardManagerBase):
    """Scores a finished rollout; `evolve_grpo` masks one without a verdict or without a score.

    For rollouts of one turn that another agent loop made.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        _require_estimator(config, ESTIMATOR)
        self._client = client_of()

    async def run_single(self, data: Any) -> dict[str, Any]:
        """See `RewardManagerBase`."""
        item = data[-1]
        responses = item.batch["responses"]
        length = int(item.batch["attention_mask"][-responses.shape[-1] :].sum())
        text = self.tokenizer.decode(responses[:length], skip_special_tokens=True)
        origin = origin_of(item.non_tensor_batch["reward_model"]["ground_truth"])
        outcomes = await self._client.judge_async([{**origin, "completion": text}])
        score, extra = _scored(outcomes, self._client.rewards[0], best=True)
        return {"reward_score": score, "reward_extra_info": extra}


class KernelAgentLoop(AgentLoopBase):
    """Several programs for one prompt, with the search's own feedback between them.

    Configured by `actor_rollout_ref.rollout.agent.agent_loop_config_path`, a YAML file with

        - name: kernel
          _target_: evolve.rl.verl.KernelAgentLoop
          turns: 3

    A rollout of which a verdict or the score is missing is not trained on: its response mask is all
    0, which every loss of verl leaves out, and the estimators leave its score out of the group as
    well. Under `evolve_trloo` every turn has its score on its last token, and a rollout's own is
    their sum.

    Args:
        turns: programs in one rollout.
        best: the rollout is worth its best turn; else its last one. For `evolve_grpo`.
        url: of the server; None for EVOLVE_SERVE_URL.
        reward: name@version; None for EVOLVE_REWARD.
    """

    def __init__(
        self,
        *args: Any,
        turns: int = 3,
        best: bool = True,
        url: str | None = None,
        reward: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        estimator = _require_estimator(self.config, *ESTIMATORS)
        self._by_turn = estimator == TURN_ESTIMATOR
        self._turns = turns
        self._best = best
        self._client = client_of(url, reward)
        self._length = self.rollout_config.response_length

    async def run(
        self, sampling_params: dict[str, Any], priority: int = 0, **row: Any
    ) -> AgentLoopOutput:
        """See `AgentLoopBase`."""
        rollout = _Rollout(messages=list(row["raw_prompt"]))
        rollout.tokens = await self.ct_build_initial_tokens(rollout.messages)
        origin = origin_of(row["reward_model"]["ground_truth"])
        for turn in range(self._turns):
            text = await self._generate(rollout, sampling_params, int(priority))
            before = parent_of(origin, rollout.outcomes)
            with simple_timer("tool_calls", rollout.metrics):
                (outcome,) = await self._client.judge_async(
                    [{**origin, **before, "completion": text}]
                )
            rollout.outcomes.append(outcome)
            if outcome.is_masked or self._is_full(rollout) or turn + 1 == self._turns:
                break
            await self._tell(rollout, text, outcome.next_turn)
            if self._is_full(rollout):  # nothing of another reply would be trained on
                break
        return self._output(rollout)

    def _is_full(self, rollout: "_Rollout") -> bool:
        return len(rollout.mask) >= self._length

    async def _generate(
        self, rollout: "_Rollout", sampling_params: dict[str, Any], priority: int
    ) -> str:
        """One reply of the model, appended to the rollout's tokens."""
        with simple_timer("generate_sequences", rollout.metrics):
            reply = await self.server_manager.generate(
                request_id=rollout.request_id,
                prompt_ids=rollout.tokens,
                sampling_params=sampling_params,
                priority=priority,
            )
        with_log_probs = bool(rollout.log_probs or reply.log_probs)
        merged, rollout.mask, log_probs = await self.ct_merge_assistant_token(
            rollout.tokens,
            reply.token_ids,
            rollout.mask,
            rollout.log_probs if with_log_probs else None,
            assistant_logprobs=reply.log_probs or None,
        )
        rollout.tokens, rollout.log_probs = merged.token_ids, log_probs or []
        rollout.extra = {**reply.extra_fields, **rollout.extra} | {
            key: reply.extra_fields[key]
            for key in ("max_global_steps",)
            if reply.extra_fields.get(key) is not None
        }
        text: str = await self.loop.run_in_executor(
            None, lambda: self.tokenizer.decode(reply.token_ids, skip_special_tokens=True)
        )
        return text

    async def _tell(self, rollout: "_Rollout", reply: str, feedback: str) -> None:
        """Append the judge's answer as the user's next message."""
        before = [*rollout.messages, {"role": "assistant", "content": reply}]
        after = [*before, {"role": "user", "content": feedback}]
        merged, rollout.mask, log_probs = await self.ct_merge_context_msg(
            before, after, rollout.tokens, rollout.mask, rollout.log_probs or None
        )
        rollout.tokens, rollout.messages = merged.token_ids, after
        rollout.log_probs = log_probs or []

    def _output(self, rollout: "_Rollout") -> AgentLoopOutput:
        name, outcomes = self._client.rewards[0], rollout.outcomes
        score, extra = _scored(outcomes, name, best=self._best or self._by_turn)
        prompt = len(rollout.tokens) - len(rollout.mask)
        mask = rollout.mask[: self._length]
        scores = [outcome.rewards.get(name) for outcome in outcomes]
        output = AgentLoopOutput(
            prompt_ids=rollout.tokens[:prompt],
            response_ids=rollout.tokens[prompt:][: self._length],
            response_mask=mask if math.isfinite(score) else [0] * len(mask),
            response_logprobs=rollout.log_probs[: self._length] or None,
            reward_score=score,
            num_turns=2 * len(outcomes),
            metrics=rollout.metrics,
            extra_fields={
                **rollout.extra,
                "turn_scores": scores,
                "tool_rewards": [],
                "reward_extra_info": extra,
            },
        )
        if self._by_turn and math.isfinite(score):
            known = [found for found in scores if found is not None]
            return TurnsOutput.of(output, _on_last_tokens(known, mask))
        return output


class TurnsOutput(AgentLoopOutput):
    """A rollout with a reward for each token; `reward_score` is their sum."""

    token_rewards: list[float]

    @classmethod
    def of(cls, output: AgentLoopOutput, token_rewards: Sequence[float]) -> "TurnsOutput":
        """The same rollout with these rewards."""
        fields = output.model_dump(exclude_unset=True) | {"reward_score": sum(token_rewards)}
        return cls(**fields, token_rewards=list(token_rewards))

    def as_dict(self) -> dict[str, Any]:
        """See `AgentLoopOutput`."""
        found: dict[str, Any] = super().as_dict()
        found["rm_scores"] = torch.tensor(found.pop("token_rewards"), dtype=torch.float32)
        return found


def _on_last_tokens(scores: Sequence[float], mask: Sequence[int]) -> list[float]:
    """The scores of turns on the last token of each."""
    (turns,) = turns_of(torch.tensor([mask]))
    rewards = [0.0] * len(mask)
    for score, (_, end) in zip(scores, turns, strict=True):
        rewards[end - 1] = score
    return rewards


@dataclass(slots=True)
class _Rollout:
    """A conversation under way, with its tokens as the model has seen and made them."""

    messages: list[dict[str, Any]]
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    request_id: str = field(default_factory=lambda: uuid4().hex)


def _scored(
    outcomes: Sequence[Outcome], name: str, *, best: bool
) -> tuple[float, dict[str, float]]:
    """The score of a rollout as the estimators take it, and the values that verl logs with it.

    The logged names are the same for every row.
    """
    worth, failed = worth_of(outcomes, name, best=best), fault_in(outcomes) is not None
    last = outcomes[-1]
    extra = {
        "infra_masked": float(failed),
        "unscored": float(worth is None and not failed),
        "correct": float(last.correct),
        "speedup": last.speedup[0] if last.speedup else 0.0,
    }
    if worth is None:
        return NO_VERDICT if failed else NO_SCORE, extra
    return worth, extra
