"""One step of TRL's own trainer with our reward and our environment; skipped without TRL.

Invariants: the trainer takes both as they are, leaves a row that is worth None out, and hands the
model the judge's words as the answer of a tool.
"""

import json

import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from trl import chat_template_utils as templates

from evolve.rl import Client, TooManyMasked
from evolve.rl.trl import environment, environment_reward, reward_function
from tests.serve.serving import candidate, serving


def tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    base = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(letters)}, merges=[]))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    base.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=base, eos_token="</s>", pad_token="<pad>")


def model(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(words)}
    return LlamaForCausalLM(LlamaConfig(**shape, **heads, max_position_embeddings=8192))


def settings(folder, rows: int, **others) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=rows,
        num_generations=2,
        max_steps=1,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        **others,
    )


def train(folder, client, tasks: list[str], most_masked: float) -> dict[str, float]:
    """What the trainer logs of one step over these tasks, two completions each."""
    words = tokenizer()
    trainer = GRPOTrainer(
        model=model(words),
        reward_funcs=reward_function(client, most_masked=most_masked),
        args=settings(folder, 2 * len(tasks), max_completion_length=4),
        train_dataset=Dataset.from_list([{"prompt": "p", "task": task} for task in tasks]),
        processing_class=words,
    )
    trainer.train()
    return trainer.state.log_history[0]


class ScriptedTrainer(GRPOTrainer):
    """Its model says the same words in every episode, one reply after the other."""

    def __init__(self, replies: list[str], **arguments) -> None:
        self.replies = replies
        self.prompts: list[str] = []
        super().__init__(**arguments)

    def _generate_single_turn(self, prompt_ids, *_, **__):
        self.prompts += [self.processing_class.decode(ids) for ids in prompt_ids]
        ids = self.processing_class.encode(self.replies.pop(0), add_special_tokens=False)
        return [list(ids) for _ in prompt_ids], None


def tool_call(code: str) -> str:
    call = json.dumps({"name": "submit", "arguments": {"code": code}})
    return f"<tool_call>\n{call}\n</tool_call><|im_end|>"


@pytest.mark.timeout(300)
def test_an_episode_of_several_turns_is_played_by_the_trainer(tmp_path):
    words = tokenizer()
    words.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    words.eos_token, words.chat_template = "<|im_end|>", templates.qwen3_chat_template
    turns = [tool_call(candidate(word)) for word in ("wrong_value", "speedup 3.0")]
    row = {"prompt": [{"role": "user", "content": "Make it fast."}], "task": "rmsnorm"}
    with serving(tmp_path) as server:
        client = Client(server.url, rewards=["kevin@1"])
        trainer = ScriptedTrainer(
            [*turns, "So be it.<|im_end|>"],
            model=model(words),
            environment_factory=environment(client, turns=2),
            reward_funcs=environment_reward(client),
            args=settings(tmp_path, 2, max_completion_length=6000),
            train_dataset=Dataset.from_list([row]),
            processing_class=words,
        )
        trainer.train()
    logged = trainer.state.log_history[0]
    assert logged["reward"] == pytest.approx(3.3)
    assert (logged["infra_masked"], logged["unscored"]) == (0.0, 0.0)
    assert logged["tools/failure_frequency"] == 0.0
    assert "stub: wrong_value" in trainer.prompts[2]  # two episodes, three replies each
    assert "3.00x as fast as PyTorch eager" in trainer.prompts[4]


@pytest.mark.timeout(300)
def test_a_step_is_scored_by_the_server(tmp_path):
    with serving(tmp_path) as server:
        client = Client(server.url, rewards=["cuda_agent@1"], baseline="compile")
        logged = train(tmp_path, client, ["rmsnorm", "softmax"], most_masked=0.01)
        assert logged["reward"] == -1.0  # random tokens hold no program
        assert logged["infra_masked"] == 0.0


def test_rows_without_a_verdict_are_not_worth_nothing_they_are_left_out(tmp_path):
    nobody = Client("http://127.0.0.1:9", rewards=["kevin@1"], patience_s=0.2)
    logged = train(tmp_path, nobody, ["rmsnorm"], most_masked=1.0)
    assert logged["reward"] is None
    assert (logged["infra_masked"], logged["loss"]) == (1.0, 0.0)


def test_a_step_without_verdicts_ends_the_training(tmp_path):
    nobody = Client("http://127.0.0.1:9", rewards=["kevin@1"], patience_s=0.2)
    with pytest.raises(TooManyMasked, match="2 of 2 rows"):
        train(tmp_path, nobody, ["rmsnorm"], most_masked=0.01)
