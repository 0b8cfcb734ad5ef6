"""Filters of recipes: each keeps a step or counts it with its reason, over all runs together."""

from evolve.core.evaluation import Status
from evolve.store import Store
from evolve.trajectories.tally import Tally
from evolve.trajectories.views.recipes import find_recipe
from tests.trajectories.rows import numbers, removed, rows
from tests.trajectories.searched import Searched, verdict


def test_filters_are_added_after_a_plus_sign(told: Searched) -> None:
    found, tally = rows(told, "kernel_smith@2+not_shown_faster@1", "supervised")
    assert numbers(found) == [1, 5, 7, 9]
    assert list(tally.removed)[-1] == "not_shown_faster@1"
    assert rows(told, "kernel_smith@2+verified@1", "supervised")[0] == []  # the tuned one was


def test_lazy_kernels_are_rejected_by_their_share_of_device_time(search: Searched) -> None:
    search.model("A", verdict(1.0, descriptors={"coverage": 0.9}))  # kept: above 0.4
    search.model("B", verdict(1.0, descriptors={"coverage": 0.2}))  # never: below 0.3
    search.model("C", verdict(1.0))
    search.model("D", verdict(status=Status.COMPILE_ERROR))  # wrong turns are always kept
    for number in range(40):  # half of them: (0.35 - 0.3) / 0.1
        search.model(f"E{number}", verdict(1.0, descriptors={"coverage": 0.35}))
    found, tally = rows(search, "kto@1+prs@1", "labelled")
    assert numbers(found)[:2] == [0, 3]
    assert 10 < len(found) - 2 < 30
    small = removed(tally)["too small a share of device time in its own kernels"]
    assert small == 1 + 40 - (len(found) - 2)
    assert removed(tally)["no profile of it"] == 1
    assert numbers(rows(search, "kto@1+prs@1", "labelled")[0]) == numbers(found)


def test_unique_programs_are_unique_over_runs(store: Store) -> None:
    searches = [Searched(store, name) for name in ("one", "two")]
    for search in searches:
        search.built_in("A", verdict(1.0))
        search.model("B", verdict(2.0), "A")
    tally = Tally()
    ids = [search.run.id for search in searches]
    recipe = find_recipe("kernel_smith@2+unique@1")
    found = list(recipe.rows(store, ids, "supervised", tally=tally))
    assert [row.step.id for row in found] == ["one:1"]
    assert removed(tally)["the same program as in an earlier row"] == 1
