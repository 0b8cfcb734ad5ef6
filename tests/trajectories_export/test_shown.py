"""What a prompt shows of other tasks, runs and models takes its step out of training rows.

Invariants:
1. No training row shows findings of a run on a test task, a task that is left out, or of a run that
   is not known, nor the text of a test task.
2. With allowed models, no row shows words of another model: in findings of finished runs, in
   attempts, in summaries and designs.
3. A step whose prompt shows none of it is kept.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.core.recalled import Kind, Recalled
from evolve.core.task import Task
from evolve.store import Store
from evolve.trajectories.decontamination.exclusions import Rules
from evolve.trajectories.decontamination.holdout import hold_out
from operators.prompting.prompt_context import attempt_text, recalled_text
from operators.quoting import quote
from tests.trajectories.searched import Searched, verdict
from tests.trajectories_export.exporting import SOFTMAX, exported, steps

SOFT = Task(name="soft", source=SOFTMAX, category="softmax")
OTHER = Task(name="other", source="class Model: size = 3", category="other")
NEXT = Task(name="next", source=SOFTMAX.replace("softmax", "log_softmax"))
MODELS = Rules(models=("open/*",))


def finding(*runs: Searched, name: str = "") -> Recalled:
    return Recalled(
        kind=Kind.IDEA,
        about=f"best program: {', '.join(run.name for run in runs)}{name}",
        words="Wider loads.",
        runs={run.name: run.task.revision for run in runs},
    )


def past(store: Store, name: str = "past", task: Task = SOFT, model: str = "open/one") -> Searched:
    search = Searched(store, name, task)
    search.model("A", verdict(1.5, task=task), asked=model)
    return search


def told(store: Store, *found: Recalled, name: str = "told", task: Task = NEXT) -> Searched:
    """A run of two first steps, of which the second has the findings in its prompt."""
    search = Searched(store, name, task, recalled=found)
    search.model("B", verdict(1.5, task=task), asked="open/one")
    said = "\n\n".join(map(recalled_text, found))
    search.model("C", verdict(1.5, task=task), asked="open/one", job=said)
    return search


def removed(made) -> dict[str, int]:
    return dict(made.removed["supervised"])


def test_findings_on_a_test_task_are_in_no_training_row(store: Store, tmp_path: Path):
    before = past(store)
    search = told(store, finding(before))
    runs = [before, search]
    made = exported(search, tmp_path / "out", searches=runs, test_families=("softmax",))
    assert steps(tmp_path / "out") == [0]
    assert list(removed(made)) == [
        "allowed: prompt of a training row shows a task of the test split, or findings on it"
    ]
    made = exported(search, tmp_path / "none", searches=runs, test_share=0)
    assert made.rows == {"supervised": {"train": 3}}


def test_findings_on_a_test_task_are_seen_if_their_run_is_not_exported(
    store: Store, tmp_path: Path
):
    before = past(store)
    tested = past(store, "tested", Task(name="t", source="class Model: ...", category="softmax"))
    search = told(store, finding(before))
    runs = [search, tested]
    exported(search, tmp_path / "out", searches=runs, test_families=("softmax",))
    assert steps(tmp_path / "out") == [0]
    assert steps(tmp_path / "out", split="test") == [0]


def test_a_row_of_the_test_split_may_show_findings(store: Store, tmp_path: Path):
    before = past(store, "past", OTHER)
    search = told(store, finding(before), task=SOFT)
    exported(search, tmp_path / "out", searches=[before, search], test_families=("softmax",))
    assert steps(tmp_path / "out", split="test") == [0, 1]


def test_the_text_of_a_test_task_is_in_no_training_row(store: Store, tmp_path: Path):
    tested = past(store)
    search = Searched(store, "plain", OTHER)
    search.model("B", verdict(1.5, task=OTHER))
    search.model("C", verdict(1.5, task=OTHER), job=f"As in\n{SOFTMAX}")
    exported(search, tmp_path / "out", searches=[tested, search], test_families=("softmax",))
    assert steps(tmp_path / "out") == [0]


def test_findings_on_a_task_that_is_left_out_are_in_no_row(store: Store, tmp_path: Path):
    (tmp_path / "soft.py").write_text(SOFTMAX)
    search = told(store, finding(past(store)))
    rules = Rules(held_out=hold_out([str(tmp_path / "soft.py")]))
    made = exported(search, tmp_path / "out", rules=rules)
    assert steps(tmp_path / "out") == [0]
    assert removed(made) == {"allowed: prompt shows findings of a run that is left out": 1}
    bound = Task(name="b", source="# SPDX-License-Identifier: CC-BY-NC-4.0\nclass Model: ...")
    search = told(store, finding(past(store, "bound", bound)), name="licensed")
    exported(search, tmp_path / "licence")
    assert steps(tmp_path / "licence") == [0]


@pytest.mark.parametrize("case", ["not recorded", "deleted", "of another task"])
def test_findings_of_a_run_that_is_not_known_are_in_no_row(case: str, store: Store, tmp_path: Path):
    past(store)
    runs = {"not recorded": {}, "deleted": {"gone": "1"}, "of another task": {"past": "1"}}
    search = told(store, Recalled(kind=Kind.IDEA, about="a run", words="x", runs=runs[case]))
    made = exported(search, tmp_path / "out")
    assert steps(tmp_path / "out") == [0]
    assert removed(made) == {"allowed: prompt shows findings of a run that is not known": 1}


def test_findings_by_a_model_that_is_not_allowed_are_in_no_row(store: Store, tmp_path: Path):
    good, bad = past(store), past(store, "bad", model="closed/two")
    exported(told(store, finding(good)), tmp_path / "good", rules=MODELS)
    assert steps(tmp_path / "good") == [0, 1]
    exported(told(store, finding(good, bad), name="both"), tmp_path / "out", rules=MODELS)
    assert steps(tmp_path / "out") == [0]


def test_models_behind_findings_of_findings_count(store: Store, tmp_path: Path):
    middle = told(store, finding(past(store, model="closed/two")), name="middle")
    search = told(store, finding(middle), name="last")
    exported(search, tmp_path / "out", rules=MODELS)
    assert steps(tmp_path / "out") == [0]


def test_what_descends_from_a_step_that_was_shown_such_findings_is_left_out(
    store: Store, tmp_path: Path
):
    search = told(store, finding(past(store, model="closed/two")))
    search.model("D", verdict(3.0, task=NEXT), "C", asked="open/one")
    exported(search, tmp_path / "out", rules=MODELS)
    assert steps(tmp_path / "out") == [0]


def attempts(search: Searched) -> Sequence[str]:
    told = search.store.recent(search.run.id, 9)
    return [attempt_text(one, "eager") for one in told]


@pytest.mark.parametrize("what", ["attempt", "summary", "design", "intent", "intents", "diagnosis"])
def test_words_of_a_model_that_is_not_allowed_are_in_no_row(
    what: str, store: Store, tmp_path: Path
):
    search = Searched(store)
    search.model("A", verdict(1.5), asked="closed/two", note="Wider loads.")
    search.model("B", verdict(1.5), asked="open/one")
    said = attempts(search)[-1] if what == "attempt" else quote("Wider loads.", what)
    assert "Wider loads." in said
    search.model("C", verdict(1.5), asked="open/one", job=said)
    exported(search, tmp_path / "out", rules=MODELS)
    assert steps(tmp_path / "out") == [1]


def test_words_of_allowed_models_take_nothing_out(store: Store, tmp_path: Path):
    search = Searched(store)
    search.model("A", verdict(1.5), asked="open/two")
    search.model("B", verdict(1.5), asked="open/one", job="\n".join(attempts(search)))
    search.model("C", verdict(1.5), asked="open/one", job=quote("It is fast.", "summary"))
    search.model("D", verdict(1.5), asked="closed/two")
    exported(search, tmp_path / "out", rules=MODELS)
    assert steps(tmp_path / "out") == [0, 1, 2]


def test_a_warm_start_from_another_text_of_the_task_counts_as_shown(store: Store, tmp_path: Path):
    before = past(store)
    search = Searched(store, "warm", OTHER, warm_start="past")
    search.model("B", verdict(1.5, task=OTHER))
    runs = [before, search]
    made = exported(search, tmp_path / "out", searches=runs, test_families=("softmax",))
    assert made.rows == {"supervised": {"test": 1}}
    same = Searched(store, "same", OTHER, warm_start="warm")
    same.model("B", verdict(1.5, task=OTHER))
    made = exported(same, tmp_path / "same", searches=[before, same], test_families=("softmax",))
    assert made.rows == {"supervised": {"train": 1, "test": 1}}
