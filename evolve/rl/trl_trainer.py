"""TRL's GRPO trainer with turn-level advantages and mismatch rejection (Dr. Kernel).

It needs TRL. `evolve.rl.trl` has the rewards and the environment.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from trl import GRPOTrainer

from evolve.core.errors import UsageError
from evolve.rl.outcome import Outcome
from evolve.rl.trl import Environment, tool_result
from evolve.rl.turns import Mismatch, Scores, spread, trloo


class TurnTrainer(GRPOTrainer):
    """A `GRPOTrainer` with an advantage for each turn, from the same turn of other rollouts.

    With `environment`, each answer of the model is a turn, and its score is that of the program it
    submits. With `reward_function`, a completion is one turn. Rows without a score are left out. If
    tokens come with the log-probabilities of their sampling (vLLM, or a `rollout_func`), rollouts
    that the trained model would not have sampled are not trained on. Their share is logged as
    `mismatch/rejected`, and their scores stay in the means of their groups, as in KernelGYM.

    Args:
        *args: as `GRPOTrainer`.
        gamma: discount of each later turn.
        mismatch: limits of the rejection; None rejects nothing.
        **kwargs: as `GRPOTrainer`; exactly one of `reward_funcs`, from `evolve.rl.trl`.

    Raises:
        UsageError: more than one reward, or TRL's own correction beside the rejection.
    """

    def __init__(
        self,
        *args: Any,
        gamma: float = 1.0,
        mismatch: Mismatch | None = Mismatch(),  # noqa: B008 (frozen)
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if len(self.reward_funcs) != 1:
            raise UsageError(f"reward_funcs: a turn has one score, not {len(self.reward_funcs)}")
        if mismatch and self.use_vllm and self.vllm_importance_sampling_correction:
            raise UsageError(
                "vllm_importance_sampling_correction=True: the mismatch would count twice; set it "
                "to False, or mismatch=None"
            )
        self._gamma = gamma
        self._mismatch = mismatch
        self._turn_scores: list[Scores] = []

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Tensor:
        found = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        first = self.accelerator.process_index * len(prompts)
        rewards = found[first : first + len(prompts), 0].tolist()
        played: Sequence[Any] = self.environments or [None] * len(prompts)
        rows = zip(played, completions, rewards, strict=True)
        self._turn_scores = [_scores_of(*row) for row in rows]
        return found

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        mask = _written(output)
        output["advantages"] = spread(self._advantages(len(mask)), mask)
        if self._mismatch and "sampling_per_token_logps" in output:
            self._reject(output, mask, self._mismatch)
        return output

    def _advantages(self, rows: int) -> list[list[float]]:
        """Of the turns of this process' rows, against those of all processes."""
        scores = gather_object(list(self._turn_scores))
        is_training = self.model.training
        size = self.num_generations if is_training else self.num_generations_eval
        advantages = trloo(scores, [row // size for row in range(len(scores))], self._gamma)
        self._log_again(advantages)
        first = self.accelerator.process_index * rows
        return advantages[first : first + rows]

    def _log_again(self, advantages: Sequence[Sequence[float]]) -> None:
        """Put the means of the turns' advantages in the place of those that TRL has logged."""
        logged = self._logs["advantages"]
        for _ in range(min(len(logged), len(advantages))):
            logged.pop()
        logged.extend(statistics.fmean(turns) for turns in advantages)

    def _reject(self, output: dict[str, Any], mask: Tensor, limits: Mismatch) -> None:
        """Take the rollouts that the trained model is too far from out of the loss."""
        training = output.get("old_per_token_logps")
        training = self._logps(output) if training is None else training
        kept = limits.keeps(training, output["sampling_per_token_logps"], mask)
        output["tool_mask"] = mask * kept.unsqueeze(-1)
        trained = self.accelerator.gather(output["tool_mask"].sum()).sum()
        output["num_items_in_batch"] = trained
        rejected = self.accelerator.gather((~kept).float().mean()).mean().item()
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["mismatch/rejected"].append(rejected)

    def _logps(self, output: Mapping[str, Any]) -> Tensor:
        """Log-probabilities of the completions' tokens under the model as it is now."""
        sides = ("prompt_ids", "completion_ids"), ("prompt_mask", "completion_mask")
        tokens, attention = (torch.cat([output[name] for name in names], dim=1) for names in sides)
        with torch.no_grad():
            found: Tensor = self._get_per_token_logps_and_entropies(
                self.model,
                tokens,
                attention,
                output["completion_ids"].size(1),
                batch_size=self.args.per_device_train_batch_size,
            )[0]
        return found


def _written(output: Mapping[str, Any]) -> Tensor:
    """1 for tokens that the model wrote itself."""
    mask: Tensor = output["completion_mask"]
    return mask * output["tool_mask"] if "tool_mask" in output else mask


def _scores_of(played: Environment | None, completion: Any, reward: float) -> Scores:
    """The scores of a row's turns; NaN if the row, or one of its programs, has no score."""
    if played is None or not played.outcomes or math.isnan(reward):
        return [*[None] * (_turns(completion) - 1), reward]
    return [_best(turn) for turn in _by_turn(completion, played.outcomes)]


def _turns(completion: Any) -> int:
    if isinstance(completion, str):
        return 1
    return sum(message["role"] == "assistant" for message in completion)


def _by_turn(completion: Any, outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes of the programs that each of the assistant's messages submitted.

    A submission is recognised by the answer of its tool. If TRL has dropped an answer that was too
    long, the last message has made the submission.
    """
    turns: list[list[Outcome]] = []
    waiting = list(outcomes)
    for message in completion:
        if message["role"] == "assistant":
            turns.append([])
        elif waiting and message["content"] == tool_result(waiting[0]):
            turns[-1].append(waiting.pop(0))
    turns[-1] += waiting
    return turns


def _best(turn: Sequence[Outcome]) -> float | None:
    """The best score of the programs of a turn; None if it submitted none."""
    found = [score for outcome in turn for score in outcome.rewards.values()]
    scores = [score for score in found if score is not None]
    return max(scores, default=None) if len(scores) == len(found) else math.nan
