"""verl's own readers take the exports: prompts for RL, conversations for SFT.

1. A row of RL has `raw_prompt`, `reward_model.ground_truth` and `extra_info` where verl looks.
2. The loss of SFT is on all assistant turns, so a conversation with one that is not wanted is none
   of its rows.
"""

import json
from typing import Any

import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from evolve.trajectories.loading import load_dataset
from tests.trainers.conftest import Exported
from tests.trajectories.searched import TASK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_rl_prompts_are_read(exported: Exported, tokenizer: Any, tmp_path: Any) -> None:
    folder, manifest = exported("verl-rl", "kernel_smith@2")
    files = [str(folder / shard.path) for shard in manifest.shards]
    config = OmegaConf.create({"max_prompt_length": 10_000, "cache_dir": str(tmp_path / "cache")})
    rows = RLHFDataset(files, tokenizer, config)
    assert len(rows) == manifest.rows["prompt"]["train"]
    batch = collate_fn([rows[0], rows[1]])
    assert list(batch["data_source"]) == ["evolve", "evolve"]
    assert [one["role"] for one in batch["raw_prompt"][0]] == ["system", "user"]
    truth = json.loads(batch["reward_model"][0]["ground_truth"])
    assert truth["reference"] == TASK.source
    assert list(batch["index"]) == [0, 1]


def test_sft_takes_the_loss_on_all_answers(exported: Exported, tokenizer: Any) -> None:
    folder, manifest = exported("verl-sft", "multi_turn@1")
    files = [str(folder / shard.path) for shard in manifest.shards]
    config = {"max_length": 20_000, "truncation": "error", "pad_mode": "no_padding"}
    rows = MultiTurnSFTDataset(files, tokenizer, config)
    [conversation, _] = load_dataset(folder, "conversation")
    item = rows[0]
    kept = tokenizer.decode(item["input_ids"][item["loss_mask"].bool()])
    wanted = [one["content"] for one in conversation["messages"] if one["role"] == "assistant"]
    assert len(wanted) == 3
    assert kept == "".join(f"{content}<|end|>" for content in wanted)


def test_single_turns_are_read_for_sft(exported: Exported, tokenizer: Any) -> None:
    folder, manifest = exported("verl-sft", "kernel_smith@2")
    files = [str(folder / shard.path) for shard in manifest.shards]
    config = {"max_length": 20_000, "truncation": "error", "pad_mode": "no_padding"}
    rows = MultiTurnSFTDataset(files, tokenizer, config)
    assert len(rows) == manifest.rows["supervised"]["train"]
