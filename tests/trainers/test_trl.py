"""TRL takes the exports as they are: its data utilities read them, its trainers take a step.

1. Rows are conversational for TRL, and its chat templating keeps prompt and answer apart.
2. SFT, DPO, KTO and GRPO trainers make a training step on the loaded folder, without a map in
   between; GRPO hands the reward function what the reward server takes.
"""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from datasets import load_dataset
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    SFTConfig,
    SFTTrainer,
)
from trl.data_utils import apply_chat_template, is_conversational

from tests.trainers.conftest import Exported
from tests.trajectories.searched import TASK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def settings(kind: Any, folder: Path, **others: Any) -> Any:
    return kind(
        output_dir=str(folder / "trained"),
        max_steps=1,
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        **others,
    )


def rows_of(folder: Path, view: str, tmp_path: Path) -> Any:
    return load_dataset(str(folder), view, split="train", cache_dir=str(tmp_path / "cache"))


def test_prompt_and_answer_stay_apart(exported: Exported, tokenizer: Any, tmp_path: Path) -> None:
    folder, _ = exported("trl-sft", "kernel_smith@2")
    row = rows_of(folder, "supervised", tmp_path)[0]
    assert is_conversational(row)
    text = apply_chat_template(row, tokenizer)
    assert text["prompt"].endswith("<|assistant|> ")
    assert text["completion"] == row["completion"][0]["content"] + "<|end|>"


@pytest.mark.parametrize(
    ("recipe", "view"),
    [
        ("kernel_smith@2", "supervised"),
        ("multi_turn@1", "conversation"),
        ("repair@3", "supervised"),
    ],
)
def test_sft_takes_a_step(
    recipe: str, view: str, exported: Exported, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    folder, _ = exported("trl-sft", recipe)
    trainer = SFTTrainer(
        model=model,
        args=settings(SFTConfig, tmp_path, max_length=None),
        train_dataset=rows_of(folder, view, tmp_path),
        processing_class=tokenizer,
    )
    assert trainer.train().training_loss > 0


def test_the_loss_is_on_the_answer_only(
    exported: Exported, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    folder, _ = exported("trl-sft", "kernel_smith@2")
    rows = rows_of(folder, "supervised", tmp_path)
    trainer = SFTTrainer(
        model=model,
        args=settings(SFTConfig, tmp_path, max_length=None),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    batch = trainer.data_collator([trainer.train_dataset[0]])
    kept = batch["labels"][0][batch["labels"][0] != -100]
    assert tokenizer.decode(kept) == rows[0]["completion"][0]["content"] + "<|end|>"


def test_dpo_takes_a_step(exported: Exported, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    folder, _ = exported("trl-dpo", "siblings@1")
    trainer = DPOTrainer(
        model=model,
        args=settings(DPOConfig, tmp_path, max_length=None),
        train_dataset=rows_of(folder, "preference", tmp_path),
        processing_class=tokenizer,
    )
    assert trainer.train().training_loss > 0


def test_kto_takes_a_step(exported: Exported, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    folder, manifest = exported("trl-kto", "kto@1")
    rows = rows_of(folder, "labelled", tmp_path)
    assert {True, False} == set(rows["label"])
    trainer = KTOTrainer(
        model=model,
        args=settings(KTOConfig, tmp_path, max_length=None),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    assert trainer.train().training_loss > 0
    assert manifest.rows["labelled"]["train"] == len(rows)


def test_grpo_takes_a_step_and_tells_the_reward_what_it_is_for(
    exported: Exported, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    folder, _ = exported("trl-grpo", "kernel_smith@2")
    seen: list[str] = []

    def reward(completions: list[Any], reference: list[str], **_: Any) -> list[float]:
        seen.extend(reference)
        return [float(len(one[0]["content"])) for one in completions]

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=settings(
            GRPOConfig, tmp_path, num_generations=2, max_completion_length=8, temperature=1.0
        ),
        train_dataset=rows_of(folder, "prompt", tmp_path),
        processing_class=tokenizer,
    )
    trainer.train()
    assert set(seen) == {TASK.source}
