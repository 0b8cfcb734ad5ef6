"""A search that winds, and a tokenizer and a model small enough to train on it within a test."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Status
from tests.trajectories.searched import Searched, verdict

SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MAX_TOKENS = 4096  # tokens


def winding(search: Searched) -> None:
    """A way to the best program with turns that are wanted, are not, and of which nobody knows."""
    search.model("A", verdict(status=Status.WRONG_VALUE))
    search.model("B", verdict(1.0), "A", operator="repair")
    search.model("C", verdict(0.5), "B")  # slower
    search.model("D", verdict(0.502), "C")  # no faster beyond the error
    search.model("E", verdict(2.0), "D")


def tokenizer(rows: Iterable[dict[str, Any]]) -> Any:
    """A tokenizer trained on all texts of the rows, with a template that marks what is said."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    learned = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(_texts(rows), learned)
    made = PreTrainedTokenizerFast(
        tokenizer_object=bare, pad_token="<|pad|>", eos_token="<|end|>", model_max_length=MAX_TOKENS
    )
    made.chat_template = TEMPLATE
    return made


def _texts(rows: Iterable[dict[str, Any]]) -> list[str]:
    lists = (value for row in rows for value in row.values() if isinstance(value, list))
    return [message["content"] for messages in lists for message in messages]


def model(words: Any, folder: Path) -> Any:
    """A random model of two layers, loaded from a folder: trainers load a reference from there."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id,
    )
    LlamaForCausalLM(shape).save_pretrained(folder / "model")
    return LlamaForCausalLM.from_pretrained(folder / "model")


def said(answer: dict[str, str]) -> str:
    """An answer as the template ends it."""
    return f"{answer['content']}<|end|>"
