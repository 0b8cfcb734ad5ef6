"""What may not be trained on is left out of exports and counted.

Held-out tasks by name, text, sizes or graph, prompts that show one, cheats, licences, models with
all that descends from them, keys.
"""

import re
from pathlib import Path

import pytest

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.llm.secrets import HIDDEN
from evolve.store import Store
from evolve.trajectories.decontamination.exclusions import Rules
from evolve.trajectories.decontamination.holdout import hold_out
from tests.trajectories.searched import Searched, verdict
from tests.trajectories_export.exporting import SOFTMAX, exported, files, run_on, steps


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
    first, second, last = (source.detail for source in made.sources)
    assert (first, last) == ("same name as kernelbench:1/23", "")
    assert re.fullmatch(r"same source as eval/softmax\.py \(sha256 [0-9a-f]{12}\)", second)
    assert made.rows == {"supervised": {"train": 1}}
    [near] = made.near_misses
    assert near["task"] == "other"
    assert 0 < near["distance"] < 0.6
    assert re.fullmatch(r"eval/softmax\.py \(sha256 [0-9a-f]{12}\)", near["name"])
    assert re.fullmatch(r"eval/ \(digest [0-9a-f]{12}\)", made.held_out[1])
    card = (tmp_path / "out" / "README.md").read_text()
    assert "task is held out: 2" in card
    assert f"task is held out: {second} |" in card


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


def test_an_export_names_no_path_of_the_machine_that_made_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    texts = {"a": SOFTMAX, "b": SOFTMAX.replace("softmax", "log_softmax")}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.py").write_text(text)
    (tmp_path / "b" / "link.py").symlink_to(tmp_path / "a" / "task.py")
    monkeypatch.chdir(tmp_path / "b")
    held_out = hold_out([str(tmp_path / "a" / "task.py"), "task.py", str(tmp_path / "a"), "."])
    assert {*held_out.sources.values()} == {*texts.values()}  # of one name, both are held out
    search = run_on(store, "other", SOFTMAX.replace("softmax", "softmin"))
    exported(search, tmp_path / "out", rules=Rules(held_out=held_out))
    place = str(tmp_path).encode()
    assert not [name for name, data in files(tmp_path / "out").items() if place in data]


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
    assert made.excluded == {"licence is not one of --licences-allowed": 2}


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


@pytest.mark.parametrize("place", ["reply", "reasoning"])
@pytest.mark.parametrize("is_hidden", [True, False])
def test_a_step_whose_model_said_a_key_is_left_out_also_if_it_was_taken_out(
    place: str, is_hidden: bool, search: Searched, tmp_path: Path
):
    said = f"my key is {HIDDEN if is_hidden else 'sk-proj-0123456789abcdefghij'}"
    search.model("A", verdict(1.5), **{place: said})
    search.model("B", verdict(1.5))
    made = exported(search, tmp_path / "out")
    assert steps(tmp_path / "out") == [1]
    assert made.removed["supervised"] == {"allowed: text holds what looks like a key": 1}


# The folder
