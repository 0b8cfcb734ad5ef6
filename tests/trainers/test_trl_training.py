"""Some steps of training with TRL's own trainers on exports, from a folder to changed weights.

The model is a random one of two layers; its tokenizer is trained on what was exported.

1. SFT, DPO, KTO and GRPO train on the loaded folder as it is: the loss falls, weights change.
2. In the batches that SFT takes its steps on, the loss is on the wanted turns, each once, and on
   nothing else, whether TRL masks by completion or by the turns of the assistant.
3. DPO and KTO score answers only, each on the side or with the label that the row says.
4. GRPO is rewarded by the server, over the program that a prompt goes on from, by a pinned judge.
"""

import asyncio
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` has it")

import torch
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

from evolve.rl import Client
from evolve.rl.trl import reward_function
from tests.serve.serving import candidate, serving
from tests.trainers.small import model, said, tokenizer, winding
from tests.trajectories.searched import Searched, story
from tests.trajectories_export.exporting import exported

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS = 8


def made(
    kind: Any, config: Any, rows: Any, folder: Path, reward_funcs: Any = None, **others: Any
) -> Any:
    """A trainer over the rows as they were loaded."""
    words = tokenizer(rows)
    rewards = {} if reward_funcs is None else {"reward_funcs": reward_funcs}
    settings = config(
        output_dir=str(folder / "trained"),
        max_steps=STEPS,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        per_device_train_batch_size=4,
        **others,
    )
    return kind(
        model=model(words, folder),
        args=settings,
        train_dataset=rows,
        processing_class=words,
        **rewards,
    )


def losses(trainer: Any) -> list[float]:
    """The loss of every step. All weights have changed when this returns."""
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    after = dict(trainer.model.named_parameters())
    assert all(not torch.equal(before[name], value) for name, value in after.items())
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def rows_of(search: Searched, folder: Path, target: str, recipe: str, view: str) -> Any:
    exported(search, folder / "export", target, recipe)
    return load_dataset(
        str(folder / "export"), view, split="train", cache_dir=str(folder / "cache")
    )


def answers(rows: Any, column: str) -> list[str]:
    return [said(answer) for [answer] in rows[column]]


def learned_texts(trainer: Any, chosen: str) -> list[str]:
    """What of an epoch's batches the loss is on, text by text."""
    words, found = trainer.processing_class, []
    for batch in trainer.get_train_dataloader():
        kept = batch[chosen] > 0  # neither -100 nor 0
        found += [words.decode(ids[on]) for ids, on in zip(batch["input_ids"], kept, strict=True)]
    return found


@pytest.mark.parametrize("recipe", ["kernel_smith@2", "repair@3"])
def test_sft_learns_single_turns(recipe: str, search: Searched, tmp_path: Path) -> None:
    story(search)
    rows = rows_of(search, tmp_path, "trl-sft", recipe, "supervised")
    trainer = made(SFTTrainer, SFTConfig, rows, tmp_path, max_length=None)
    assert sorted(learned_texts(trainer, "labels")) == sorted(answers(rows, "completion"))
    first, *_, last = losses(trainer)
    assert last < 0.8 * first


@pytest.mark.parametrize("by_turns_of_the_assistant", [False, True])
def test_sft_takes_the_loss_on_the_wanted_turns_of_a_conversation_only(
    by_turns_of_the_assistant: bool, search: Searched, tmp_path: Path
) -> None:
    winding(search)
    rows = rows_of(search, tmp_path, "trl-sft", "multi_turn@1", "conversation")
    trainer = made(
        SFTTrainer,
        SFTConfig,
        rows,
        tmp_path,
        max_length=None,
        assistant_only_loss=by_turns_of_the_assistant,
    )
    wanted = sorted(learned_texts(trainer, "labels"))
    assert [text.splitlines()[0] for text in wanted] == ["Here is B.", "Here is E."]
    assert wanted == sorted(answers(rows, "completion"))
    shown = [message["content"] for message in rows[1]["prompt"] if message["role"] == "assistant"]
    assert [text.splitlines()[0] for text in shown] == [f"Here is {name}." for name in "ABCD"]
    first, *_, last = losses(trainer)
    assert last < 0.8 * first


def test_dpo_learns_which_of_two_is_faster(search: Searched, tmp_path: Path) -> None:
    story(search)
    rows = rows_of(search, tmp_path, "trl-dpo", "siblings@1", "preference")
    trainer = made(DPOTrainer, DPOConfig, rows, tmp_path, max_length=None)
    [batch] = trainer.get_train_dataloader()
    sides = learned_texts(trainer, "completion_mask")
    assert len(sides) == len(batch["input_ids"]) == 2 * len(rows)
    assert set(sides[: len(rows)]) == set(answers(rows, "chosen"))
    assert set(sides[len(rows) :]) == set(answers(rows, "rejected"))
    first, *_, last = losses(trainer)
    assert first == pytest.approx(0.693, abs=0.01)  # log 2: it knows no difference yet
    assert last < 0.8 * first


def test_kto_learns_what_is_wanted(search: Searched, tmp_path: Path) -> None:
    story(search)
    rows = rows_of(search, tmp_path, "trl-kto", "kto@1", "labelled")
    trainer = made(KTOTrainer, KTOConfig, rows, tmp_path, max_length=None)
    labels = [label for batch in trainer.get_train_dataloader() for label in batch["label"]]
    texts = learned_texts(trainer, "completion_mask")
    told = zip(answers(rows, "completion"), rows["label"], strict=True)
    assert sorted(zip(texts, map(bool, labels), strict=True)) == sorted(told)
    first, *_, last = losses(trainer)
    assert last < first


class Scripted(GRPOTrainer):
    """Its model says a good program and one that is wrong, in turns."""

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        replies = cycle(
            f"```python\n{candidate(word)}```" for word in ("speedup 3.0", "wrong_value")
        )
        words = self.processing_class
        return [[*words.encode(next(replies)), words.eos_token_id] for _ in prompt_ids], None


def test_grpo_is_rewarded_by_a_pinned_server(search: Searched, tmp_path: Path) -> None:
    """The stub judge takes the program that a prompt goes on from for 1.5 times as fast."""
    story(search)
    rows = rows_of(search, tmp_path, "trl-grpo", "kernel_smith@2", "prompt")
    with serving(tmp_path, references="any") as server:
        about = asyncio.run(Client(server.url).about())
        pins = {"evaluator": about["evaluator_version"], "device_class": about["device_class"]}
        client = Client(server.url, rewards=["kernel_smith@1"], pins=pins)
        trainer = made(
            Scripted,
            GRPOConfig,
            rows,
            tmp_path,
            reward_funcs=reward_function(client),
            num_generations=2,
            max_completion_length=256,
        )
        assert len(losses(trainer)) == STEPS
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["reward"] for entry in log] == pytest.approx([1.0] * STEPS)  # of 2.0 and 0.0
    assert {(entry["infra_masked"], entry["unscored"]) for entry in log} == {(0.0, 0.0)}
    assert all(entry["grad_norm"] > 0 for entry in log)
