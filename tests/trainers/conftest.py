"""Exports, and a tokenizer and a model that are small enough to train within a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evolve.store import Store
from evolve.trajectories.exporters.export import Plan, export
from evolve.trajectories.exporters.formats import find_format
from evolve.trajectories.exporters.manifest import Manifest
from evolve.trajectories.views.recipes import find_recipe
from tests.trajectories.searched import Searched, story

Exported = Callable[..., tuple[Path, Manifest]]

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|> {% endif %}"
)


@pytest.fixture
def search(tmp_path: Path) -> Searched:
    return Searched(Store.open(tmp_path / "told.db", create=True))


@pytest.fixture
def exported(tmp_path: Path) -> Exported:
    """Two runs of the story in shards of a few rows: the folder and its manifest."""
    store = Store.open(tmp_path / "searches.db", create=True)
    searches = [Searched(store, name) for name in ("first", "second")]
    for search in searches:
        story(search)

    def make(target: str, recipe: str, **plan: Any) -> tuple[Path, Manifest]:
        folder = tmp_path / f"{target}-{recipe}"
        whole = Plan(
            format=find_format(target),
            recipe=find_recipe(recipe),
            shard_bytes=2000,
            **{"parquet": find_format(target).parquet, **plan},
        )
        runs = [search.run for search in searches]
        return folder, export(store, runs, folder, whole, lambda *_: None)

    return make


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """Bytes as tokens, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|pad|>", "<|end|>"]
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    bare = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=bare, pad_token="<|pad|>", eos_token="<|end|>", model_max_length=4096
    )
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def model(tokenizer: Any, tmp_path: Path) -> Any:
    """A causal language model of a few thousand weights, loaded from a folder."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=4096,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return LlamaForCausalLM.from_pretrained(tmp_path / "model")  # trainers load a copy of it
