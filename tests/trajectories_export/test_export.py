"""Stored runs into a folder (the story of tests/trajectories/searched.py, step by step there).

1. The rows are those of the recipe, in the trainer's columns, and load again.
2. What may not be trained on is left out and counted: held-out tasks by name, text, sizes or graph,
   prompts that show one, cheats, licences, models with all that descends from them, keys.
3. The same runs give the same bytes; a killed export goes on and gives them too.
4. Nothing loads before the export is complete.
5. Rows are split by task family.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.measurement import Ratio
from evolve.core.model import TokenTrace
from evolve.core.task import Task
from evolve.store import Store
from evolve.trajectories.exclusions import Rules
from evolve.trajectories.exporters.export import Plan, export
from evolve.trajectories.exporters.folder import building
from evolve.trajectories.exporters.formats import FORMATS, find_format
from evolve.trajectories.holdout import hold_out
from evolve.trajectories.loading import load_dataset
from evolve.trajectories.manifest import Manifest
from evolve.trajectories.recipes import RECIPES, find_recipe
from evolve.trajectories.rewards import keeps_match
from tests.trajectories.searched import Searched, source, story, verdict

ROOT = Path(__file__).parents[2]
SOFTMAX = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


ROWS = 64


def get_inputs():
    return [torch.rand(ROWS, 32)]


def get_init_inputs():
    return []
"""


def exported(
    search: Searched,
    folder: Path,
    target: str = "trl-sft",
    recipe: str = "kernel_smith@1",
    *,
    searches: Sequence[Searched] = (),
    **plan: Any,
) -> Manifest:
    whole = Plan(format=find_format(target), recipe=find_recipe(recipe), **plan)
    runs = [one.run for one in searches or (search,)]
    return export(search.store, runs, folder, whole, lambda *_: None)


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def steps(folder: Path, view: str = "supervised", split: str = "train") -> list[int]:
    return [int(row["step_id"].partition(":")[2]) for row in load_dataset(folder, view, split)]


@pytest.fixture
def told(search: Searched) -> Searched:
    story(search)
    return search


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


def run_on(store: Store, name: str, source: str, **task: Any) -> Searched:
    search = Searched(store, name, Task(name=name, source=source, **task))
    search.model("A", verdict(1.5, task=search.task))
    return search


def test_held_out_tasks_are_left_out_and_counted(store: Store, tmp_path: Path):
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "softmax.py").write_text(SOFTMAX)
    searches = [
        run_on(store, "kernelbench:1/23", "class Model: ..."),
        run_on(store, "same", "# copied\n" + SOFTMAX.replace("64", "8192")),
        run_on(store, "other", SOFTMAX.replace("softmax", "log_softmax")),
    ]
    held_out = hold_out(["kernelbench", str(tmp_path / "eval")])
    made = exported(
        searches[0], tmp_path / "out", searches=searches, rules=Rules(held_out=held_out)
    )
    assert [source.excluded for source in made.sources] == ["task is held out"] * 2 + [""]
    assert made.excluded == {"task is held out": 2}
    assert made.rows == {"supervised": {"train": 1}}
    [near] = made.near_misses
    assert near["task"] == "other"
    assert 0 < near["distance"] < 0.6
    assert "task is held out: 2" in (tmp_path / "out" / "README.md").read_text()


def test_a_held_out_task_with_other_names_of_variables_is_no_near_miss_but_the_same(
    store: Store, tmp_path: Path
):
    (tmp_path / "softmax.py").write_text(SOFTMAX)
    renamed = re.sub(r"\bx\b", "values", SOFTMAX).replace("dim=-1", "dim=1")
    searches = [run_on(store, "renamed", renamed), run_on(store, "other", "class Model: size = 3")]
    rules = Rules(held_out=hold_out([str(tmp_path / "softmax.py")]))
    made = exported(searches[0], tmp_path / "out", searches=searches, rules=rules)
    assert made.excluded == {"task is held out": 1}
    assert made.near_misses == ()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "RUN:SEQUENCE, a step of a search" in card
    assert "graphs were not compared. A prompt that shows" in card


def test_a_prompt_that_shows_a_held_out_task_is_left_out(search: Searched, tmp_path: Path):
    (tmp_path / "softmax.py").write_text(SOFTMAX)
    search.model("A", verdict(1.5), reply="fast")
    search.model("B", verdict(1.5), reply="faster", shows="A")
    rules = Rules(held_out=hold_out([str(tmp_path / "softmax.py")]))
    made = exported(search, tmp_path / "clean", rules=rules)
    assert made.rows == {"supervised": {"train": 2}}
    shown = Task(name="shown", source="class Model: ...")
    other = Searched(search.store, "second", shown)
    other.model("A", verdict(1.5, task=shown), shows=[SOFTMAX])
    made = exported(other, tmp_path / "out", rules=rules)
    assert made.rows == {}
    assert made.removed["supervised"] == {"allowed: prompt shows a held-out task": 1}


def test_cheats_are_left_out_whatever_the_recipe(search: Searched, tmp_path: Path):
    search.model("A", verdict(1.5))
    search.model("B", verdict(1.5, labels=["decoy_kernel"]))
    search.model("C", verdict(status=Status.HACK))
    search.model("D", verdict(1.5, labels=["plain_loop"]))
    made = exported(search, tmp_path / "out", "trl-kto", "kto@1")
    assert steps(tmp_path / "out", "labelled") == [0, 3]
    assert made.removed["labelled"] == {"allowed: flagged as cheating": 2}


def test_a_licence_that_forbids_training_takes_its_task_out(store: Store, tmp_path: Path):
    free = run_on(store, "free", "# SPDX-License-Identifier: MIT\nclass Model: ...")
    bound = run_on(store, "bound", "# SPDX-License-Identifier: CC-BY-NC-4.0\nclass Model: ...")
    unknown = run_on(store, "unknown", "class Model: size = 3")
    searches = [free, bound, unknown]
    made = exported(free, tmp_path / "out", searches=searches)
    assert [source.licence for source in made.sources] == ["MIT", "CC-BY-NC-4.0", "unknown"]
    assert made.excluded == {"licence of the task forbids training": 1}
    named = Rules(licences=("MIT",))
    made = exported(free, tmp_path / "named", searches=searches, rules=named)
    assert made.excluded == {"licence of the task forbids training": 2}


def test_a_task_that_failed_its_audit_is_left_out(store: Store, tmp_path: Path):
    sound = run_on(store, "sound", "class Model: ...")
    weak = run_on(store, "weak", "class Model: size = 3")
    found = [{"name": "zeros", "passed_by": "only", "detail": "zeros is judged correct"}]
    store.record_audit(weak.run.id, found)
    weak.run = store.run("weak")
    made = exported(sound, tmp_path / "out", searches=[sound, weak])
    assert made.excluded == {"task accepts what computes nothing": 1}


def test_a_model_that_is_not_allowed_takes_its_descendants_out(search: Searched, tmp_path: Path):
    search.model("A", verdict(1.5), asked="open/one")
    search.model("B", verdict(2.0), "A", asked="closed/two")
    search.model("C", verdict(3.0), "B", asked="open/one")
    search.model("D", verdict(2.5), "A", asked="open/three")
    made = exported(search, tmp_path / "out", rules=Rules(models=("open/*",)))
    assert steps(tmp_path / "out") == [0, 3]
    left_out = "allowed: made by a model that is not allowed, or from a program of one"
    assert made.removed["supervised"] == {left_out: 2}


def test_a_model_whose_program_a_prompt_shows_takes_the_step_out(search: Searched, tmp_path: Path):
    search.model("A", verdict(1.5), asked="open/one")
    search.model("B", verdict(2.0), "A", asked="closed/two")
    search.model("C", verdict(3.0), "A", shows="AB", asked="open/one")
    exported(search, tmp_path / "out", rules=Rules(models=("open/*",)))
    assert steps(tmp_path / "out") == [0]


def test_what_a_warm_start_took_over_is_of_no_model_that_is_allowed(store: Store, tmp_path: Path):
    search = Searched(store, "warm", warm_start="elsewhere.db:cold")
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(2.0), "A", asked="open/one")
    made = exported(search, tmp_path / "out", rules=Rules(models=("open/*",)))
    assert made.rows == {}
    known = Rules(models=("open/*", "unknown: warm start from elsewhere.db:cold"))
    made = exported(search, tmp_path / "known", rules=known)
    assert made.rows == {"supervised": {"train": 1}}


def test_a_task_that_holds_a_key_is_left_out(store: Store, tmp_path: Path):
    key = "sk-proj-0123456789abcdefghij"
    search = run_on(store, "leaky", f"KEY = {key!r}\nclass Model: ...")
    made = exported(search, tmp_path / "out", rules=Rules())
    assert made.excluded == {"text holds what looks like a key": 1}
    assert made.rows == {}


@pytest.mark.parametrize("place", ["note", "parent"])
def test_a_key_in_a_note_or_in_a_parent_is_seen(place: str, search: Searched, tmp_path: Path):
    key = "sk-proj-0123456789abcdefghij"
    parent = key if place == "parent" else "A"
    search.built_in(parent, verdict(1.0))
    search.model("B", verdict(2.0), [parent], note=key if place == "note" else "")
    made = exported(search, tmp_path / "out")
    assert made.removed["supervised"]["allowed: text holds what looks like a key"] == 1


def test_a_key_in_an_answer_that_is_in_no_row_leaves_nothing_out(search: Searched, tmp_path: Path):
    search.model("A", verdict(1.5), mended="my key is sk-proj-0123456789abcdefghij")
    exported(search, tmp_path / "out")
    assert steps(tmp_path / "out") == [0]
    assert not any(b"sk-proj" in text for text in files(tmp_path / "out").values())


def test_a_row_holds_no_key(search: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", "0123456789-secret")
    search.model("A", verdict(1.5), reply="my key is 0123456789-secret")
    search.model("B", verdict(1.5))
    made = exported(search, tmp_path / "out")
    assert steps(tmp_path / "out") == [1]
    assert made.removed["supervised"] == {"allowed: text holds what looks like a key": 1}
    assert not any(b"0123456789-secret" in text for text in files(tmp_path / "out").values())


# The folder


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
    plan = Plan(format=find_format("trl-sft"), recipe=find_recipe("kernel_smith@1"))
    runs = [one.run for one in both]
    with pytest.raises(Stopped):
        export(told.store, runs, tmp_path / "cut", plan, stop)
    assert not (tmp_path / "cut").exists()
    seen.clear()
    export(told.store, runs, tmp_path / "cut", plan, lambda unit, *_: seen.append(unit))
    assert set(seen) == {"supervised: second"}
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    assert not (tmp_path / "cut.partial").exists()


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
            recipe=find_recipe("kernel_smith@1"),
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
    recipe = "kernel_smith@1+unique@1"
    made = exported(told, tmp_path / "out", recipe=recipe, searches=[told, other])
    ids = {row["step_id"].partition(":")[0] for row in load_dataset(tmp_path / "out", "supervised")}
    assert ids == {"first"}
    assert made.removed["supervised"]["unique@1: the same program as in an earlier row"] >= 5


def test_a_killed_export_leaves_nothing_that_loads(told: Searched, tmp_path: Path):
    script = (
        "import os, signal, sys\n"
        "from evolve.store import Store\n"
        "from evolve.trajectories.exporters.export import Plan, export\n"
        "from evolve.trajectories.exporters.formats import find_format\n"
        "from evolve.trajectories.recipes import find_recipe\n"
        "from pathlib import Path\n"
        "plan = Plan(format=find_format('trl-sft'), recipe=find_recipe('kernel_smith@1'))\n"
        "store = Store.open(sys.argv[1], read_only=True)\n"
        "die = lambda unit, share, steps, rows: rows and os.kill(os.getpid(), signal.SIGKILL)\n"
        "export(store, [store.run('first')], Path(sys.argv[2]), plan, die)\n"
    )
    words = [sys.executable, "-c", script, str(told.store.path), str(tmp_path / "out")]
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
