"""Stored runs into a folder (the story of tests/trajectories/searched.py, step by step there).

1. The rows are those of the recipe, in the trainer's columns, and load again.
2. The same runs give the same bytes; a killed export goes on and gives them too.
3. Nothing loads before the export is complete.
4. Rows are split by task family.

What is left out: test_exclusions.py.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.measurement import Ratio
from evolve.core.model import ReplyStatus, TokenTrace
from evolve.store import Store
from evolve.trajectories.decontamination.exclusions import Rules
from evolve.trajectories.decontamination.holdout import hold_out
from evolve.trajectories.decontamination.splits import family_of
from evolve.trajectories.exporters.export import Plan, export
from evolve.trajectories.exporters.folder import building
from evolve.trajectories.exporters.formats import FORMATS, find_format
from evolve.trajectories.exporters.manifest import read_manifest
from evolve.trajectories.loading import load_dataset
from evolve.trajectories.rewards import keeps_match
from evolve.trajectories.views.recipes import RECIPES, Recipe, find_recipe
from tests.trajectories.searched import Searched, source, story, verdict
from tests.trajectories.test_autotriton import triton, wrote
from tests.trajectories_export.exporting import ROOT, SOFTMAX, exported, files, run_on, steps


def test_the_rows_are_those_of_the_recipe(told: Searched, tmp_path: Path):
    made = exported(told, tmp_path / "out")
    assert steps(tmp_path / "out") == [1, 5, 7, 8, 9]
    first = next(load_dataset(tmp_path / "out", "supervised"))
    assert list(first) == ["prompt", "completion", "score", "step_id", "task"]
    assert first["score"] == pytest.approx(1.5)
    assert [one["role"] for one in first["prompt"]] == ["system", "user"]
    assert first["completion"][0]["content"].startswith("Here is B.")
    assert made.rows == {"supervised": {"train": 5}}
    assert made.models == {"m": 5}
    counts = made.removed["supervised"]
    assert counts["correct@1: not correct"] == 3
    assert sum(counts.values()) + 5 == 20


@pytest.mark.sample(3)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_rows_for_sft_have_a_score_or_no_column_for_it(
    recipe: Recipe, told: Searched, tmp_path: Path
):
    told.model("Z", verdict(0.7))  # a first version
    for name in "UVW":  # directions that fail
        told.model(name, verdict(status=Status.WRONG_VALUE), "G")
    told.model("X", verdict(1.0), code=triton("X"), reply=wrote("X"))
    told.model("Y", verdict(1.0), "A", operator="clean_up", code=triton("Y"), reply=wrote("Y"))
    for view in set(recipe.views) & {"supervised", "conversation"}:
        exported(told, tmp_path / "out", "trl-sft", recipe.name)
        rows = list(load_dataset(tmp_path / "out", view))
        assert rows
        assert all(isinstance(row.get("score", 1.0), float) for row in rows)
        assert len({"score" in row for row in rows}) == 1


def test_gains_and_first_correct_versions_are_counted_apart(told: Searched, tmp_path: Path):
    told.model("Z", verdict(0.7))
    made = exported(told, tmp_path / "out")
    assert made.outcomes == {"supervised": {"first correct version": 1, "gain": 5}}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "first correct version 1, gain 5." in card
    assert read_manifest(tmp_path / "out").outcomes == made.outcomes
    made = exported(told, tmp_path / "kto", "trl-kto", "kto@1")
    assert made.outcomes == {"labelled": {"first correct version": 1, "gain": 5, "repair": 1}}


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", FORMATS)
def test_every_format_takes_every_recipe_that_fits_it(target: str, told: Searched, tmp_path: Path):
    for recipe in RECIPES:
        if not set(recipe.views) & set(FORMATS[target].shapes):
            continue
        folder = tmp_path / recipe.name
        made = exported(told, folder, target, recipe.name)
        for view, splits in made.rows.items():
            rows = list(load_dataset(folder, view))
            assert len(rows) == splits["train"]
            assert all(list(row) == list(made.columns[view]) for row in rows)
        assert json.loads((folder / "manifest.json").read_text())["recipe"] == recipe.name


def test_a_recipe_that_does_not_fit_is_refused(told: Searched, tmp_path: Path):
    with pytest.raises(UsageError, match="makes preference rows, and --to trl-sft takes"):
        exported(told, tmp_path / "out", "trl-sft", "siblings@1")
    assert not list(tmp_path.glob("out*"))


def test_rewards_get_what_the_reward_server_takes(told: Searched, tmp_path: Path):
    messages = pytest.importorskip("evolve.serve.messages")
    exported(told, tmp_path / "trl", "trl-grpo")
    row = next(load_dataset(tmp_path / "trl", "prompt"))
    assert row.pop("step_id") == "first:1"
    del row["prompt"]
    asked = messages.Submission(**row, completion="a reply")
    assert (asked.reference, asked.size) == (told.task.source, told.task.size)
    assert asked.parent_source == source("A")
    exported(told, tmp_path / "verl", "verl-rl")
    row = next(load_dataset(tmp_path / "verl", "prompt"))
    truth = json.loads(row["reward_model"]["ground_truth"])
    assert messages.Submission(**truth, completion="a reply") == asked


def test_openrlhf_and_slime_find_what_they_add_up_or_pass_on(told: Searched, tmp_path: Path):
    exported(told, tmp_path / "rlhf", "openrlhf")
    row = next(load_dataset(tmp_path / "rlhf", "supervised"))
    roles = [one["role"] for one in row["input"] + row["output"]]
    assert roles == ["system", "user", "assistant"]
    label = next(load_dataset(tmp_path / "rlhf", "prompt"))["label"]
    assert json.loads(label)["reference"] == told.task.source
    exported(told, tmp_path / "slime", "slime")
    row = next(load_dataset(tmp_path / "slime", "prompt"))
    assert row["label"] == label
    assert row["metadata"] == {"step_id": "first:1", "task": "rows"}


def test_messages_carry_the_tokens_that_an_endpoint_gave(search: Searched, tmp_path: Path):
    trace = TokenTrace(prompt_ids=(1, 2), ids=(3, 4), logprobs=(-0.5, -0.25))
    search.model("A", verdict(1.0), trace=trace)
    search.model("B", verdict(2.0), "A")
    exported(search, tmp_path / "out", "messages")
    first, second = (row["trace"] for row in load_dataset(tmp_path / "out", "supervised"))
    assert first == {"prompt_ids": [1, 2], "ids": [3, 4], "logprobs": [-0.5, -0.25]}
    assert keeps_match([-0.5, -0.25], first["logprobs"]) is True
    assert keeps_match([-0.5, -9.0], first["logprobs"]) is False
    assert keeps_match([-0.5, -0.25], second["logprobs"]) is None


@pytest.fixture
def repaired(search: Searched) -> Searched:
    """A line whose first turn failed, and whose third came to nothing that can be told."""
    search.model("A", verdict(status=Status.WRONG_VALUE), mended="I would rather not.")
    search.model("B", verdict(1.0), "A")
    search.model("C", verdict(Ratio(1.01, 0.9, 1.1)), "B")
    search.model("D", verdict(2.0), "C")
    return search


def test_messages_say_of_every_answer_whether_it_is_wanted(repaired: Searched, tmp_path: Path):
    exported(repaired, tmp_path / "out", "messages", "multi_turn@1")
    [row] = load_dataset(tmp_path / "out", "conversation")
    assert [one["role"] for one in row["messages"]].count("assistant") == 4
    assert row["labels"] == [False, True, False, True]


@pytest.mark.parametrize(("target", "mark"), [("slime", "step_loss_mask"), ("axolotl", "train")])
def test_turns_that_are_not_wanted_are_marked_where_a_trainer_can_leave_them_out(
    target: str, mark: str, repaired: Searched, tmp_path: Path
):
    exported(repaired, tmp_path / "out", target, "multi_turn@1")
    [row] = load_dataset(tmp_path / "out", "conversation")
    marks = [(one["role"], int(one[mark])) for one in row["messages"]]
    assert [mark for role, mark in marks if role == "assistant"] == [0, 1, 0, 1]
    assert not any(mark for role, mark in marks if role != "assistant")
    if target == "axolotl":
        config = yaml.safe_load((tmp_path / "out" / "axolotl.yaml").read_text())
        [entry] = config["datasets"]
        assert (entry["message_field_training"], entry["roles_to_train"]) == ("train", [])


@pytest.mark.parametrize(
    ("target", "context", "answer"),
    [("trl-sft", "prompt", "completion"), ("openrlhf", "input", "output")],
)
def test_a_trainer_of_one_answer_a_row_gets_a_row_for_every_wanted_turn(
    target: str, context: str, answer: str, repaired: Searched, tmp_path: Path
):
    made = exported(repaired, tmp_path / "out", target, "multi_turn@1")
    found = list(load_dataset(tmp_path / "out", "conversation"))
    assert steps(tmp_path / "out", "conversation") == [1, 3]
    assert made.rows == {"conversation": {"train": 2}}
    assert [row[answer][0]["content"].splitlines()[0] for row in found] == [
        "Here is B.",
        "Here is D.",
    ]
    assert [one["role"] for one in found[1][context]][-2:] == ["assistant", "user"]


@pytest.mark.parametrize("target", ["verl-sft", "llamafactory"])
def test_a_trainer_that_learns_from_all_turns_gets_those_that_are_all_wanted(
    target: str, repaired: Searched, tmp_path: Path
):
    other = Searched(repaired.store, "second")
    other.model("A", verdict(1.0), mended="I would rather not.")
    other.model("B", verdict(2.0), "A")
    made = exported(repaired, tmp_path / "out", target, "multi_turn@1", searches=[repaired, other])
    [row] = load_dataset(tmp_path / "out", "conversation")
    assert row["step_id"] == "second:1"
    assert [one["role"] for one in row["messages"]].count("assistant") == 2
    left_out = "format: a turn that is not wanted, which this trainer would learn from"
    assert made.removed["conversation"][left_out] == 4


# What is left out


def test_the_same_runs_give_the_same_bytes(told: Searched, tmp_path: Path):
    other = Searched(told.store, "second")
    story(other)
    for name in ("one", "two"):
        exported(told, tmp_path / name, searches=[told, other], shard_bytes=1000)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert len(list((tmp_path / "one").rglob("*.jsonl"))) > 3


def test_a_stopped_export_goes_on_where_it_was(told: Searched, tmp_path: Path):
    other = Searched(told.store, "second")
    story(other)
    both = [told, other]
    exported(told, tmp_path / "whole", searches=both)

    class Stopped(Exception):
        pass

    def stop(unit: str, *_: int) -> None:
        seen.append(unit)
        if unit == "supervised: second":
            raise Stopped

    seen: list[str] = []
    plan = Plan(format=find_format("trl-sft"), recipe=find_recipe("kernel_smith@2"))
    runs = [one.run for one in both]
    with pytest.raises(Stopped):
        export(told.store, runs, tmp_path / "cut", plan, stop)
    assert not (tmp_path / "cut").exists()
    seen.clear()
    export(told.store, runs, tmp_path / "cut", plan, lambda unit, *_: seen.append(unit))
    assert set(seen) == {"supervised: second"}
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    assert not (tmp_path / "cut.partial").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize("recipe", ["kto@1", "kto@1+unique@1"])
def test_an_export_that_is_killed_within_a_long_run_goes_on_there(
    recipe: str, search: Searched, tmp_path: Path
):
    for number in range(130):
        status = Status.WRONG_VALUE if number % 3 else Status.CORRECT
        search.model(f"A{number}", verdict(1.5 if number % 3 == 0 else None, status))
    plan = {"recipe": find_recipe(recipe), "commit_rows": 30, "format": find_format("trl-kto")}
    whole = export(search.store, [search.run], tmp_path / "whole", Plan(**plan), lambda *_: None)

    class Stopped(Exception):
        pass

    def stop(unit: str, share: float, steps: int, rows: int) -> None:
        if rows == 115:
            raise Stopped

    with pytest.raises(Stopped):
        export(search.store, [search.run], tmp_path / "cut", Plan(**plan), stop)
    seen: list[int] = []
    again = export(
        search.store,
        [search.run],
        tmp_path / "cut",
        Plan(**plan),
        lambda unit, share, steps, rows: seen.append(steps),
    )
    assert again == whole
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    assert seen[0] == (101 if recipe == "kto@1" else 1)  # what a filter remembers is in no journal


def test_a_stopped_export_begins_anew_where_other_tasks_are_held_out(
    told: Searched, tmp_path: Path
):
    """The path is the same, and what lies there is not."""

    class Stopped(Exception):
        pass

    def stop(unit: str, *_: int) -> None:
        if unit == "supervised: second":
            raise Stopped

    def plan() -> Plan:
        return Plan(
            format=find_format("trl-sft"),
            recipe=find_recipe("kernel_smith@2"),
            rules=Rules(held_out=hold_out([str(held_out)])),
        )

    held_out = tmp_path / "held.py"
    held_out.write_text(SOFTMAX)
    runs = [told.run, (second := Searched(told.store, "second")).run]
    story(second)
    with pytest.raises(Stopped):
        export(told.store, runs, tmp_path / "out", plan(), stop)
    held_out.write_text(SOFTMAX.replace("softmax", "log_softmax"))
    seen: set[str] = set()
    export(told.store, runs, tmp_path / "out", plan(), lambda unit, *_: seen.add(unit))
    assert seen == {"supervised: first", "supervised: second"}


def test_the_card_counts_rows(told: Searched, tmp_path: Path):
    made = exported(told, tmp_path / "out", "trl-dpo", "siblings@1")
    assert made.rows == {"preference": {"train": 1}}
    assert made.models == {"m": 1}  # of a pair, both of whose answers are its
    assert made.devices == {"cpu-test": 1}


def test_filters_that_remember_see_all_runs(told: Searched, tmp_path: Path):
    other = Searched(told.store, "second")
    story(other)
    recipe = "kernel_smith@2+unique@1"
    made = exported(told, tmp_path / "out", recipe=recipe, searches=[told, other])
    ids = {row["step_id"].partition(":")[0] for row in load_dataset(tmp_path / "out", "supervised")}
    assert ids == {"first"}
    assert made.removed["supervised"]["unique@1: the same program as in an earlier row"] >= 5


def test_a_filter_that_remembers_asks_about_steps_that_become_rows_only(
    search: Searched, tmp_path: Path
):
    code = source("A")
    search.built_in("parent", verdict(1.0))
    search.model("A", verdict(3.0), code=code, asked="closed")
    search.model("A", verdict(1.0), ["parent"], code=f"# neither\n{code}", asked="open")
    search.model("A", verdict(1.5), code=f"# first\n{code}", asked="open")
    search.model("A", verdict(1.5), code=f"# again\n{code}", asked="open")
    recipe, rules = "kto@1+unique@1", Rules(models=("open",))
    made = exported(search, tmp_path / "out", "trl-kto", recipe, rules=rules)
    assert steps(tmp_path / "out", "labelled") == [3]
    assert made.removed["labelled"]["unique@1: the same program as in an earlier row"] == 1


def test_the_prompt_of_a_task_is_kept_if_its_first_step_is_left_out(
    search: Searched, tmp_path: Path
):
    search.model("A", verdict(3.0), asked="closed")
    search.model("B", verdict(3.0), asked="open")
    search.model("C", verdict(3.0), asked="open")
    rules = Rules(models=("open",))
    exported(search, tmp_path / "out", "trl-grpo", "autotriton_rl@1", rules=rules)
    assert steps(tmp_path / "out", "prompt") == [1]


def test_replies_without_a_program_are_the_same_if_their_texts_are(
    search: Searched, tmp_path: Path
):
    for reply in ("I cannot.", "I do not know.", "I cannot."):
        search.model(None, failure="no_code", reading=ReplyStatus.NO_CODE, reply=reply)
    made = exported(search, tmp_path / "out", "trl-kto", "kto@1+unique@1")
    assert steps(tmp_path / "out", "labelled") == [0, 1]
    assert made.removed["labelled"]["unique@1: the same reply as in an earlier row"] == 1


@pytest.mark.slow  # one within a long run is above
def test_a_killed_export_leaves_nothing_that_loads(told: Searched, tmp_path: Path):
    script = (
        "import os, signal, sys\n"
        "from evolve.store import Store\n"
        "from evolve.trajectories.exporters.export import Plan, export\n"
        "from evolve.trajectories.exporters.formats import find_format\n"
        "from evolve.trajectories.views.recipes import find_recipe\n"
        "from pathlib import Path\n"
        "plan = Plan(format=find_format('trl-sft'), recipe=find_recipe('kernel_smith@2'))\n"
        "store = Store.open(sys.argv[1], read_only=True)\n"
        "die = lambda unit, share, steps, rows: rows and os.kill(os.getpid(), signal.SIGKILL)\n"
        "export(store, [store.run('first')], Path(sys.argv[2]), plan, die)\n"
    )
    words = [sys.executable, "-c", script, told.store.location, str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run(words, env=environment, check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    with pytest.raises(UsageError, match="no finished export"):
        load_dataset(tmp_path / "out", "supervised")
    with pytest.raises(UsageError, match="no finished export"):
        load_dataset(tmp_path / "out.partial", "supervised")
    exported(told, tmp_path / "out")
    assert steps(tmp_path / "out") == [1, 5, 7, 8, 9]


def test_an_export_that_is_there_is_not_written_over(told: Searched, tmp_path: Path):
    exported(told, tmp_path / "out")
    with pytest.raises(UsageError, match="exists already"):
        exported(told, tmp_path / "out")


def test_it_is_told_how_far_it_is_also_while_there_are_no_rows(told: Searched, tmp_path: Path):
    """Pairs are found when all steps have been looked at."""
    shares: list[float] = []
    steps_without_rows = 0

    def tell(unit: str, share: float, steps: int, rows: int) -> None:
        nonlocal steps_without_rows
        shares.append(share)
        steps_without_rows += rows == 0

    plan = Plan(format=find_format("trl-dpo"), recipe=find_recipe("siblings@1"))
    export(told.store, [told.run], tmp_path / "out", plan, tell)
    assert steps_without_rows == 20
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_an_export_does_not_take_the_place_of_the_folder_that_one_is_in(
    told: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in (".", str(tmp_path / "here")):
        with pytest.raises(UsageError, match=r"is where you are.*name a folder in it"):
            exported(told, Path(name))
    assert not list(tmp_path.glob("*.partial"))


def test_two_processes_do_not_write_one_export(told: Searched, tmp_path: Path):
    with (
        building(tmp_path / "out"),
        pytest.raises(UsageError, match="another process is writing"),
    ):
        exported(told, tmp_path / "out")


def test_a_shard_that_was_cut_off_does_not_load(told: Searched, tmp_path: Path):
    made = exported(told, tmp_path / "out")
    os.truncate(tmp_path / "out" / made.shards[0].path, 100)
    with pytest.raises(UsageError, match="not as it was written"):
        load_dataset(tmp_path / "out", "supervised")
    with pytest.raises(UsageError, match="has no view sft; there are supervised"):
        load_dataset(tmp_path / "out", "sft")


@pytest.mark.slow
def test_rows_are_split_by_family(store: Store, tmp_path: Path):
    searches = [
        run_on(
            store,
            f"task{number}",
            f"class Model: a = b.operation{number}",
            category=f"kind{number % 4}",
        )
        for number in range(8)
    ]
    made = exported(searches[0], tmp_path / "out", searches=searches, test_share=0.3)
    assert len(made.test_families) == 1
    families = {
        split: {
            source.family
            for row in load_dataset(tmp_path / "out", "supervised", split)
            for source in made.sources
            if source.task == row["task"]
        }
        for split in ("train", "test")
    }
    assert families["test"] == set(made.test_families)
    assert not families["train"] & families["test"]
    assert made.rows == {"supervised": {"train": 6, "test": 2}}


@pytest.mark.slow
def test_what_computes_the_same_is_not_split_however_it_is_spelled(store: Store, tmp_path: Path):
    searches = [
        run_on(store, "one", SOFTMAX),
        run_on(store, "same", SOFTMAX.replace("torch.softmax(x, dim=-1)", "x.softmax(-1)")),
        run_on(store, "other", SOFTMAX.replace("softmax", "log_softmax")),
    ]
    family = min(family_of(search.task) for search in searches[:2])
    made = exported(searches[0], tmp_path / "out", searches=searches, test_families=(family,))
    assert len({source.family for source in made.sources[:2]}) == 1
    assert made.rows == {"supervised": {"train": 1, "test": 2}}
