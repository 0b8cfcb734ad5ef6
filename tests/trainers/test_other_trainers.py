"""OpenRLHF, LLaMA-Factory and Axolotl read the exports with their own loaders.

1. What the loss is taken on is the answers that are wanted, text by text.
2. Pairs are on the side, labels are those, that the export says; a prompt keeps its reward's aim.
"""

import json
import sys
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("datasets", reason="no trainer is installed; `make test-trainers` has them")

from evolve.trajectories.loading import load_dataset
from tests.trainers.small import said, tokenizer, winding
from tests.trajectories.searched import TASK, Searched, story, verdict
from tests.trajectories_export.exporting import exported

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG = 100_000
CONVERSATIONS = [(story, "kernel_smith@2", "supervised"), (winding, "multi_turn@1", "conversation")]


def rows_of(folder: Path, view: str) -> list[dict[str, Any]]:
    return list(load_dataset(folder, view))


def on(ids: Any, mask: Any) -> list[int]:
    return [token for token, kept in zip(ids, mask, strict=True) if kept]


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


class Strategy:
    """What of OpenRLHF's strategy its data sets read."""

    def __init__(self, **keys: str) -> None:
        self.args = SimpleNamespace(
            data=SimpleNamespace(apply_chat_template=True, **keys), use_ms=False
        )

    def is_rank_0(self) -> bool:
        return False

    def print(self, *_: Any) -> None: ...


def openrlhf_data(folder: Path, view: str, strategy: Strategy) -> Any:
    """What `--data.dataset OUT/data/VIEW/train` reads."""
    blended = pytest.importorskip("openrlhf.datasets.utils").blending_datasets
    return blended(str(folder / "data" / view / "train"), None, strategy)


@pytest.mark.parametrize(("told", "recipe", "view"), CONVERSATIONS)
def test_openrlhf_learns_the_wanted_answers(
    told: Any, recipe: str, view: str, search: Searched, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("openrlhf.datasets")
    told(search)
    exported(search, tmp_path / "out", "openrlhf", recipe)
    strategy = Strategy(input_key="input", output_key="output")
    data = openrlhf_data(tmp_path / "out", view, strategy)
    words = tokenizer(data)
    read = datasets.SFTDataset(data, words, LONG, strategy, num_processors=1)
    items = [read[number] for number in range(len(read))]
    # Its mask is that of the logits: one place before the token that is learned.
    found = [words.decode(on(ids[0, 1:], mask[0, :-1])) for ids, _, mask in items]
    assert found == [said(row["output"][0]) for row in rows_of(tmp_path / "out", view)]


def test_openrlhf_reads_pairs_and_prompts(search: Searched, tmp_path: Path) -> None:
    datasets = pytest.importorskip("openrlhf.datasets")
    story(search)
    exported(search, tmp_path / "pairs", "openrlhf", "siblings@1")
    strategy = Strategy(prompt_key="prompt", chosen_key="chosen", rejected_key="rejected")
    data = openrlhf_data(tmp_path / "pairs", "preference", strategy)
    words = tokenizer(data)
    read = datasets.RewardDataset(data, words, LONG, strategy, is_dpo=True, num_processors=1)
    chosen, _, rejected, _, prompt = read[0]
    [row] = rows_of(tmp_path / "pairs", "preference")
    sides = [words.decode(ids[0, prompt:]) for ids in (chosen, rejected)]
    assert sides == [said(row["chosen"][0]), said(row["rejected"][0])]

    exported(search, tmp_path / "prompts", "openrlhf", "kernel_smith@2")
    strategy = Strategy(input_key="input", label_key="label")
    data = openrlhf_data(tmp_path / "prompts", "prompt", strategy)
    prompts = datasets.PromptDataset(data, words, strategy)
    source, text, label, _ = prompts[0]
    assert (source, json.loads(label)["reference"]) == ("evolve", TASK.source)
    assert text.endswith("<|end|><|assistant|>")


@pytest.fixture
def llamafactory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its loader of data. It imports its reader of sounds for texts, too."""
    sounds = ModuleType("torchaudio")
    sounds.__spec__ = ModuleSpec("torchaudio", None)
    monkeypatch.setitem(sys.modules, "torchaudio", sounds)
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")  # it asks for an older transformers
    return pytest.importorskip("llamafactory.data.loader")


def by_llamafactory(loader: Any, folder: Path, view: str, stage: str) -> tuple[Any, Any]:
    """Its rows of a view that `dataset_info.json` names, and the tokenizer."""
    from llamafactory.data.template import get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments
    from transformers import Seq2SeqTrainingArguments

    words = tokenizer(rows_of(folder, view))
    data = DataArguments(
        dataset=view, dataset_dir=str(folder), template="qwen", cutoff_len=LONG,
        overwrite_cache=True,
    )  # fmt: skip
    model = SimpleNamespace(cache_dir=str(folder / "cache"), hf_hub_token=None)
    training = Seq2SeqTrainingArguments(output_dir=str(folder), use_cpu=True, report_to="none")
    template = get_template_and_fix_tokenizer(words, data)
    return loader.get_dataset(template, model, data, training, stage, words)["train_dataset"], words


def learned(labels: list[int], words: Any) -> list[str]:
    """The pieces of a row that the loss is on."""
    pieces: list[list[int]] = [[]]
    for before, label in pairwise([-100, *labels]):
        if label != -100:
            if before == -100:
                pieces.append([])
            pieces[-1].append(label)
    return [words.decode(piece).removesuffix("<|im_end|>\n") for piece in pieces[1:]]


def steady(search: Searched) -> None:
    """A conversation that this trainer may have: all of its turns are wanted."""
    search.model("A", verdict(1.0))
    search.model("B", verdict(2.0), "A")


@pytest.mark.parametrize(
    ("told", "recipe", "view"),
    [(story, "kernel_smith@2", "supervised"), (steady, "multi_turn@1", "conversation")],
)
def test_llamafactory_learns_the_wanted_answers(
    told: Any, recipe: str, view: str, llamafactory: Any, search: Searched, tmp_path: Path
) -> None:
    told(search)
    exported(search, tmp_path / "out", "llamafactory", recipe)
    read, words = by_llamafactory(llamafactory, tmp_path / "out", view, "sft")
    assert [learned(row["labels"], words) for row in read] == [
        [one["content"] for one in row["messages"] if one["role"] == "assistant"]
        for row in rows_of(tmp_path / "out", view)
    ]


def test_llamafactory_reads_pairs_and_labels(
    llamafactory: Any, search: Searched, tmp_path: Path
) -> None:
    story(search)
    exported(search, tmp_path / "pairs", "llamafactory", "siblings@1")
    [pair], words = by_llamafactory(llamafactory, tmp_path / "pairs", "preference", "rm")
    [row] = rows_of(tmp_path / "pairs", "preference")
    for side in ("chosen", "rejected"):
        assert learned(pair[f"{side}_labels"], words) == [row[side]["content"]]
    exported(search, tmp_path / "labels", "llamafactory", "kto@1")
    read, words = by_llamafactory(llamafactory, tmp_path / "labels", "labelled", "kto")
    assert [(learned(one["labels"], words), one["kto_tags"]) for one in read] == [
        ([row["messages"][-1]["content"]], row["kto_tag"])
        for row in rows_of(tmp_path / "labels", "labelled")
    ]


@pytest.mark.parametrize(("told", "recipe", "view"), CONVERSATIONS)
def test_axolotl_learns_the_wanted_answers(
    told: Any, recipe: str, view: str, search: Searched, tmp_path: Path
) -> None:
    strategies = pytest.importorskip("axolotl.prompt_strategies")
    from axolotl.utils.dict import DictDefault

    told(search)
    exported(search, tmp_path / "out", "axolotl", recipe)
    written = yaml.safe_load((tmp_path / "out" / "axolotl.yaml").read_text())
    others = {"sequence_len": LONG, "train_on_inputs": False, "chat_template": "tokenizer_default"}
    settings = DictDefault({**written, **others})
    rows = rows_of(tmp_path / "out", view)
    words = tokenizer(rows)
    words.chat_template = words.chat_template.replace("{% generation %}", "").replace(
        "{% endgeneration %}", ""
    )
    [entry] = settings.datasets
    strategy = strategies.load(entry.type, words, settings, entry)
    for row in rows:
        read = strategy.tokenize_prompt(row)
        wanted = [one for one in row["messages"] if one["role"] == "assistant"]
        kept = on(read["input_ids"], [label != -100 for label in read["labels"]])
        assert words.decode(kept) == "".join(said(one) for one in wanted if one.get("train", True))


def test_axolotl_reads_pairs(search: Searched, tmp_path: Path) -> None:
    load = pytest.importorskip("axolotl.prompt_strategies.dpo").load
    from axolotl.utils.dict import DictDefault

    story(search)
    exported(search, tmp_path / "out", "axolotl", "siblings@1")
    written = yaml.safe_load((tmp_path / "out" / "axolotl.yaml").read_text())
    settings = DictDefault({**written, "chat_template": "tokenizer_default", "rl": "dpo"})
    [row] = rows_of(tmp_path / "out", "preference")
    made = load(settings.datasets[0].type, settings, dataset_idx=0)
    change = made[0] if isinstance(made, tuple) else made
    read = change(row, tokenizer=tokenizer([{"messages": row["messages"]}]))
    assert [read["chosen"], read["rejected"]] == [said(row["chosen"]), said(row["rejected"])]
