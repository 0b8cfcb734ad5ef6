"""The agent loop, the reward manager and the estimator, in verl itself; skipped without verl.

The model is scripted, the tokenizer is made here, the judge is a real server over stub workers.

Invariants:
- only what the model wrote is trained on, and nothing of a rollout without a verdict;
- between turns the model reads what the search would tell it;
- a configuration under which a masked row would be counted is refused.
"""

import asyncio
import json
import math

import pytest

pytest.importorskip("verl")

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.workers.rollout.replica import TokenOutput

from evolve.core.errors import UsageError
from evolve.rl import verl as ours
from evolve.rl.turns import Mismatch
from tests.serve.serving import candidate, serving

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("verl"), attempts=1, retry_s=0.05) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer():
    """Bytes as tokens, and a mark for each role."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    base = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(letters)}, merges=[]))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    base.decoder = decoders.ByteLevel()
    found = PreTrainedTokenizerFast(tokenizer_object=base, eos_token="<|end|>", pad_token="<|pad|>")
    found.add_special_tokens({"additional_special_tokens": MARKS})
    found.chat_template = TEMPLATE
    return found


class ScriptedModel:
    """Gives one reply after the other, as verl's server manager does."""

    def __init__(self, tokenizer, *replies: str) -> None:
        self._tokenizer = tokenizer
        self._replies = list(replies)
        self.prompts: list[str] = []

    async def generate(self, *, prompt_ids, **_):
        self.prompts.append(self._tokenizer.decode(prompt_ids))
        text = self._replies.pop(0)
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        tokens.append(self._tokenizer.eos_token_id)
        return TokenOutput(token_ids=tokens, log_probs=[-0.5] * len(tokens), extra_fields={})


def reply(*words: str) -> str:
    return f"```python\n{candidate(*words)}```"


def roll_out(server, tokenizer, *replies: str, response_length: int = 100_000, **options):
    """The output of the agent loop, and what the model was sent."""
    truth = options.pop("truth", {})
    rollout = {"prompt_length": 10_000, "response_length": response_length}
    algorithm = {"adv_estimator": options.pop("estimator", ours.ESTIMATOR)}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "algorithm": algorithm})
    model = ScriptedModel(tokenizer, *replies)

    async def run():
        loop = ours.KernelAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=model,
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=None,
            data_config=DictConfigWrap(OmegaConf.create({})),
            url=server.url,
            **{"reward": "kevin@1", **options},
        )
        return await loop.run(
            {"logprobs": True},
            raw_prompt=[{"role": "user", "content": "Make it fast."}],
            reward_model={"ground_truth": json.dumps({"task": "rmsnorm", **truth})},
            uid="1",
        )

    return asyncio.run(run()), model.prompts


def trained_text(output, tokenizer) -> str:
    pairs = zip(output.response_ids, output.response_mask, strict=True)
    return tokenizer.decode([token for token, trained in pairs if trained])


def test_a_rollout_of_several_turns_is_worth_its_best_one(server, tokenizer):
    replies = [reply("wrong_value"), reply("speedup 3.0"), reply("speedup 2.0")]
    output, prompts = roll_out(server, tokenizer, *replies)
    assert output.reward_score == pytest.approx(3.3)
    assert output.extra_fields["turn_scores"] == pytest.approx([0.0, 3.3, 2.3])
    assert output.num_turns == 6
    assert "stub: wrong_value" in prompts[1]
    assert "3.00x as fast as PyTorch eager" in prompts[2]
    assert prompts[2].startswith(prompts[1])


def test_only_what_the_model_wrote_is_trained_on(server, tokenizer):
    replies = [reply("wrong_value"), reply("speedup 3.0")]
    output, _ = roll_out(server, tokenizer, *replies, turns=2)
    assert trained_text(output, tokenizer) == "".join(f"{text}<|end|>" for text in replies)
    assert len(output.response_logprobs) == len(output.response_ids) == len(output.response_mask)
    assert tokenizer.decode(output.prompt_ids) == "<|user|>Make it fast.<|end|><|assistant|>"


def test_a_rollout_ends_where_the_response_is_full(server, tokenizer):
    output, prompts = roll_out(server, tokenizer, reply("wrong_value"), response_length=20)
    assert len(prompts) == 1
    assert len(output.response_ids) == 20


def test_nothing_of_a_rollout_without_a_verdict_is_trained_on(server, tokenizer):
    output, _ = roll_out(server, tokenizer, reply("fail"))
    assert set(output.response_mask) == {0}
    assert math.isnan(output.reward_score)
    assert counted(output) == {"infra_masked": 1.0, "unscored": 0.0}


def counted(output) -> dict[str, float]:
    extra = output.extra_fields["reward_extra_info"]
    return {name: extra[name] for name in ("infra_masked", "unscored")}


def test_a_fault_in_a_later_turn_masks_the_rollout(server, tokenizer):
    """That turn may have been the best one."""
    output, _ = roll_out(server, tokenizer, reply("speedup 2.0"), reply("fail"))
    assert set(output.response_mask) == {0}
    assert counted(output) == {"infra_masked": 1.0, "unscored": 0.0}


def test_a_rollout_without_a_score_is_masked_and_counted_apart(server, tokenizer):
    output, _ = roll_out(
        server, tokenizer, reply("speedup 2.0", "unprofiled"), turns=1, reward="dr_kernel@1"
    )
    assert set(output.response_mask) == {0}
    assert math.isinf(output.reward_score)
    assert counted(output) == {"infra_masked": 0.0, "unscored": 1.0}


def test_every_turn_is_worth_its_gain_over_the_parent_of_the_row(server, tokenizer):
    replies = [reply("speedup 4.0"), reply("speedup 3.0")]
    truth = {"parent_source": candidate("speedup 2.0")}
    output, _ = roll_out(server, tokenizer, *replies, turns=2, reward="kernel_smith@1", truth=truth)
    assert output.extra_fields["turn_scores"] == pytest.approx([2.0, 1.5])


def data(tokenizer, text: str) -> DataProto:
    """One finished rollout as verl hands it to reward managers."""
    responses = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    prompts = torch.ones(1, 4, dtype=torch.long)
    batch = TensorDict(
        {
            "prompts": prompts,
            "responses": responses,
            "attention_mask": torch.ones(1, 4 + responses.shape[1], dtype=torch.long),
        },
        batch_size=1,
    )
    truth = np.array([{"ground_truth": '{"task": "rmsnorm"}'}], dtype=object)
    return DataProto(batch=batch, non_tensor_batch={"reward_model": truth})


def manager(server, tokenizer, monkeypatch, estimator=ours.ESTIMATOR):
    monkeypatch.setenv("EVOLVE_SERVE_URL", server.url)
    monkeypatch.setenv("EVOLVE_REWARD", "kevin@1")
    ours.client_of.cache_clear()
    config = OmegaConf.create({"algorithm": {"adv_estimator": estimator}})
    return ours.EvolveRewardManager(config, tokenizer)


@pytest.mark.parametrize(
    ("text", "score"), [(reply("speedup 2.0"), 2.3), ("no code", 0.0), (reply("fail"), math.nan)]
)
def test_the_reward_manager_scores_a_finished_rollout(server, tokenizer, monkeypatch, text, score):
    async def run():
        return await manager(server, tokenizer, monkeypatch).run_single(data(tokenizer, text))

    found = asyncio.run(run())
    assert found["reward_score"] == pytest.approx(score, nan_ok=True)
    assert found["reward_extra_info"]["infra_masked"] == float(math.isnan(score))


def test_an_estimator_that_would_count_masked_rows_is_refused(server, tokenizer, monkeypatch):
    async def run():
        manager(server, tokenizer, monkeypatch, estimator="grpo")

    with pytest.raises(UsageError, match="adv_estimator=evolve_grpo"):
        asyncio.run(run())
    with pytest.raises(UsageError, match="adv_estimator=evolve_grpo or evolve_trloo"):
        roll_out(server, tokenizer, reply(), estimator="grpo")


def test_the_estimator_is_verls_by_its_name():
    assert get_adv_estimator_fn(ours.ESTIMATOR) is ours.masked_grpo


@pytest.mark.parametrize("truth", ["[]", "3"])
def test_a_ground_truth_that_names_no_task_is_refused(truth):
    with pytest.raises(UsageError, match="JSON object"):
        ours.origin_of(truth)


def test_every_turn_of_a_rollout_has_its_own_advantage_in_verl(server, tokenizer):
    """Scores (0, 3.3) and (2.3, 0): returns 3.3, 3.3 and 2.3, 0."""
    told = [("wrong_value", "speedup 3.0"), ("speedup 2.0", "wrong_value")]
    rows = [
        roll_out(server, tokenizer, *map(reply, turns), turns=2, estimator=ours.TURN_ESTIMATOR)[
            0
        ].as_dict()
        for turns in told
    ]
    assert [row["rm_scores"].sum().item() for row in rows] == pytest.approx([3.3, 2.3])
    width = max(len(row["responses"]) for row in rows)

    def padded(name: str) -> torch.Tensor:
        return torch.stack(
            [torch.nn.functional.pad(row[name], (0, width - len(row[name]))) for row in rows]
        )

    tensors = {
        "token_level_rewards": padded("rm_scores"),
        "response_mask": padded("response_mask"),
    }
    found, _ = get_adv_estimator_fn(ours.TURN_ESTIMATOR)(
        **tensors,
        index=np.array(["p", "p"], dtype=object),
        config=AlgoConfig(adv_estimator=ours.TURN_ESTIMATOR),
    )
    for n, values in enumerate([(1.0, 3.3), (-1.0, -3.3)]):
        ids = padded("responses")[n]
        for turn, value in zip(told[n], values, strict=True):
            said = tokenizer.encode(f"{reply(turn)}<|end|>", add_special_tokens=False)
            [start] = [s for s in range(width) if ids[s : s + len(said)].tolist() == said]
            assert found[n, start : start + len(said)].tolist() == pytest.approx(
                [value] * len(said)
            )
    assert not found[tensors["response_mask"] == 0].any()


def test_a_rollout_without_a_verdict_is_masked_by_turns_too(server, tokenizer):
    output, _ = roll_out(
        server, tokenizer, reply("speedup 2.0"), reply("fail"), estimator=ours.TURN_ESTIMATOR
    )
    assert set(output.response_mask) == {0}
    assert math.isnan(output.as_dict()["rm_scores"].sum())


def test_no_reply_is_asked_for_that_would_be_cut_off(server, tokenizer):
    first = reply("speedup 2.0")
    length = len(tokenizer.encode(first)) + 4  # the judge's words do not fit
    output, prompts = roll_out(
        server, tokenizer, first, response_length=length, estimator=ours.TURN_ESTIMATOR
    )
    assert len(prompts) == 1
    assert output.as_dict()["rm_scores"].sum().item() == pytest.approx(2.3)


def test_verls_own_rejection_is_told_to_reject_as_ours_does():
    """A mean too high, a token too unlikely, and neither."""
    ours_of, mask = torch.zeros(3, 4), torch.ones(3, 4)
    theirs = torch.tensor([[-0.002] * 4, [9.3, -9.3, 0.0, 0.0], [0.002, -0.002, 0.001, -0.001]])
    limits = ours.rollout_correction()
    _, found, _ = compute_rollout_correction_and_rejection_mask(ours_of, theirs, mask, **limits)
    assert found.bool().all(dim=-1).tolist() == [False, False, True]
    assert Mismatch().keeps(ours_of, theirs, mask).tolist() == [False, False, True]
