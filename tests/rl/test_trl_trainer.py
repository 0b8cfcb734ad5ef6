"""One step of TRL's own trainer with our reward; skipped without TRL.

Invariants: the trainer takes the function as it is, and leaves a row that is worth None out.
"""

import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from evolve.rl import Client, TooManyMasked
from evolve.rl.trl import reward_function
from tests.serve.serving import serving


def tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    base = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(letters)}, merges=[]))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    base.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=base, eos_token="</s>", pad_token="<pad>")


def train(folder, client, tasks: list[str], most_masked: float) -> dict[str, float]:
    """What the trainer logs of one step over these tasks, two completions each."""
    torch.manual_seed(0)
    words = tokenizer()
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(words)}
    trainer = GRPOTrainer(
        model=LlamaForCausalLM(LlamaConfig(**shape, **heads)),
        reward_funcs=reward_function(client, most_masked=most_masked),
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=2 * len(tasks),
            num_generations=2,
            max_completion_length=4,
            max_steps=1,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": "p", "task": task} for task in tasks]),
        processing_class=words,
    )
    trainer.train()
    return trainer.state.log_history[0]


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
