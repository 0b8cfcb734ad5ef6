"""`evolve export` as users type it.

1. It says what was written and what was left out; a name that is wrong gets the names there are.
2. Beside the rows lies what a trainer wants beside them.
"""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from evolve.cli.commands.data import export
from evolve.core.errors import UsageError
from evolve.trajectories.decontamination.holdout import VARIABLE
from evolve.trajectories.loading import load_dataset
from tests.trajectories.searched import Searched, story

ROOT = Path(__file__).parents[2]


@pytest.fixture
def told(search: Searched) -> Searched:
    story(search)
    return search


def run(told: Searched, out: Path, *words: str) -> Path:
    export.main([*words, "--store", told.store.location, "-o", str(out)])
    return out


def test_it_says_what_was_written_and_what_was_left_out(
    told: Searched, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch
):
    monkeypatch.delenv(VARIABLE, raising=False)
    run(told, tmp_path / "out", "first", "--to", "trl-sft")
    said = capsys.readouterr().out
    assert "supervised: 3 left out by correct@1: not correct" in said
    assert f"{tmp_path / 'out'}: supervised, 5 train" in said
    assert "KernelBench is not at hand" in said


@pytest.mark.slow
def test_a_bar_on_a_terminal_says_how_far_it_is(told: Searched, tmp_path: Path):
    words = ["export", "first", "--to", "trl-sft", "--store", told.store.location]
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "evolve", *words, "-o", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=True,
        timeout=60,
    )
    drawn = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "steps looked at" in drawn
    assert "━" in drawn
    assert "supervised, 5 train (gain: 5)" in done.stdout


def test_the_newest_run_is_meant_where_none_is_named(told: Searched, tmp_path: Path):
    newest = Searched(told.store, "newest")
    story(newest)
    out = run(told, tmp_path / "out", "--to", "trl-kto", "--format", "jsonl")
    ids = {row["step_id"].partition(":")[0] for row in load_dataset(out, "labelled")}
    assert ids == {"newest"}


def test_formats_and_recipes_are_listed(capsys: pytest.CaptureFixture):
    export.main(["--list"])
    said = capsys.readouterr().out
    assert "kernel_smith@2" in said
    assert "--to trl-grpo, verl-rl, openrlhf, slime" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "trl"], "no such format; there are messages, trl-sft"),
        (["--to", "trl-sft", "--recipe", "smith@1"], "smith@1"),
        (
            ["--to", "trl-sft", "--test-share", "1.5"],
            "1.5; take a share of the families from 0 to below 1",
        ),
        (["--to", "trl-sft", "--test-family", "scan"], "there are reduction"),
        (["--to", "trl-sft", "--held-out", "nowhere.py"], "there is nothing there"),
        (["--to", "trl-sft", "--held-out", "none", "--held-out", "kernelbench"], "goes with no"),
        (["nameless", "--to", "trl-sft"], "nameless"),
    ],
)
def test_a_wrong_word_gets_a_message_that_helps(
    words: list[str], message: str, told: Searched, tmp_path: Path
):
    with pytest.raises(UsageError, match=message):
        run(told, tmp_path / "out", *words)
    assert not list(tmp_path.glob("out*"))  # no out.partial either


def test_where_to_and_for_whom_are_asked_for(told: Searched):
    with pytest.raises(UsageError, match="--to is missing"):
        export.main(["--store", told.store.location])


def test_llamafactory_gets_its_dataset_info(told: Searched, tmp_path: Path):
    pairs = run(told, tmp_path / "pairs", "--to", "llamafactory", "--recipe", "siblings@1")
    entry = json.loads((pairs / "dataset_info.json").read_text())["preference"]
    assert entry["ranking"]
    row = next(load_dataset(pairs, "preference"))
    assert {row[column] and column for column in entry["columns"].values()} <= set(row)
    assert row["chosen"]["role"] == entry["tags"]["assistant_tag"]
    assert list((pairs / entry["file_name"]).glob("*.jsonl"))
    labels = run(told, tmp_path / "labels", "--to", "llamafactory", "--recipe", "kto@1")
    entry = json.loads((labels / "dataset_info.json").read_text())["labelled"]
    assert entry["columns"]["kto_tag"] in next(load_dataset(labels, "labelled"))


def test_axolotl_gets_the_part_of_its_configuration(told: Searched, tmp_path: Path):
    out = run(told, tmp_path / "out", "--to", "axolotl", "--recipe", "siblings@1")
    [entry] = yaml.safe_load((out / "axolotl.yaml").read_text())["datasets"]
    assert entry["type"] == "chat_template.default"
    assert (out / entry["path"]).is_file()
    row = next(load_dataset(out, "preference"))
    fields = [entry["field_messages"], entry["field_chosen"], entry["field_rejected"]]
    assert [*fields, "step_id", "task"] == list(row)
