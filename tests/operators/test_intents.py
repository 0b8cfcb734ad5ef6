"""The tree of intents of the world model.

Invariants:
1. The next intent follows from scores alone: untried before failed, easy before difficult.
2. Edits change what a model may change, within its range, and nothing else.
3. A tree that is written down is read back equal.
4. There is always an intent to try.
"""

import math
from dataclasses import replace

import pytest

from evolve.testing.parts import make_elite
from operators.llm.intents import (
    ROOT,
    Intent,
    apply_ops,
    dumps,
    frontier,
    is_spent,
    listing,
    loads,
    path,
    read_ops,
    root_only,
    with_fallback,
)


def intent(name: str, parent: str = ROOT, **more) -> Intent:
    return Intent(id=name, parent=parent, title=more.pop("title", f"do {name}"), **more)


def tree(*intents: Intent) -> dict[str, Intent]:
    return root_only(None) | {each.id: each for each in intents}


def names(found) -> list[str]:
    return [each.id for each in found]


SOLVED = intent("i1", program="a" * 64, speedup=1.5, assignment={"B": 8})
SOME = tree(SOLVED, intent("i2", score=0.5, rating=2.0), intent("i3", "i1"), intent("i4", "i2"))


def test_the_root_is_the_program_to_start_from_or_the_reference():
    assert root_only(None)[ROOT].is_open
    found = root_only(replace(make_elite("p", speedup=2.0), assignment={"B": 4}))[ROOT]
    assert (found.program, found.assignment, found.speedup) == ("p", {"B": 4}, 2.0)
    assert (found.is_open, found.failed, found.score) == (False, 0, 0.0)


def test_a_tree_is_read_back_as_it_was():
    assert loads(dumps(SOME)) == SOME


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"score": 0.6}, {"score": 0.5}),
        ({"difficulty": 1}, {"difficulty": 2}),
        ({"rating": 6.0}, {"rating": 5.0}),
        ({"score": 0.1}, {"score": 0.9, "failed": 1}),
        ({"failed": 1}, {"failed": 2}),
        ({"score": 0.6, "difficulty": 4}, {"score": 0.5, "difficulty": 1}),
    ],
)
def test_the_next_intent_follows_from_the_numbers(first, second):
    assert names(frontier(tree(intent("i9", **first), intent("i1", **second)), 4)) == ["i9", "i1"]


def test_equal_intents_are_taken_by_name():
    assert names(frontier(tree(intent("i2"), intent("i1")), 4)) == ["i1", "i2"]


def test_intents_below_an_open_one_wait_and_so_do_difficult_ones():
    assert names(frontier(SOME, 4)) == ["i2", "i3"]
    hard = {name: replace(each, difficulty=5) for name, each in SOME.items()}
    assert names(frontier(hard | {"i3": replace(hard["i3"], difficulty=4)}, 4)) == ["i3"]
    assert names(frontier(hard, 4)) == ["i2", "i3"]


def test_a_path_leads_from_the_root_to_the_intent():
    assert names(path(SOME, SOME["i4"])) == [ROOT, "i2", "i4"]


@pytest.mark.parametrize(
    ("reply", "count"),
    [
        ('{"ops": [{"op": "x"}, 3]}', 1),
        ('Here:\n```json\n{"ops": []}\n```\n', 0),
        ('I say {"ops": [{}, {}]} now', 2),
        ('```json\n{"no": 1}\n```\n{"ops": [{}]}', None),
        ("nothing", None),
        ('{"ops": {"op": "x"}}', None),
        ("[1]", None),
    ],
)
def test_edits_are_read_from_a_reply(reply, count):
    found = read_ops(reply)
    assert (None if found is None else len(found)) == count


def test_an_edit_changes_what_a_model_may_change():
    op = {"op": "update_node", "id": "i1", "title": " new ", "score": 7, "difficulty": 0.2}
    op |= {"rating": -1, "why": "  ", "speedup": 9.0, "failed": 3, "program": ""}
    found = apply_ops(SOME, [op], 3)["i1"]
    assert found == replace(SOLVED, title="new", score=1.0, difficulty=1, rating=0.0)
    odd = {"op": "update_node", "id": "i1", "score": math.nan, "difficulty": "4", "rating": 99}
    assert apply_ops(SOME, [odd], 3)["i1"] == replace(SOLVED, rating=10.0)
    long = {"op": "update_node", "id": "i2", "title": "x" * 300, "why": "y" * 500, "difficulty": 9}
    found = apply_ops(SOME, [long], 3)["i2"]
    assert (len(found.title), len(found.why), found.difficulty) == (200, 400, 5)


def test_edits_of_the_root_and_of_unknown_intents_are_ignored():
    ops = [{"op": "update_node", "id": name, "title": "x"} for name in (ROOT, "i77")]
    ops += [{"op": "delete_node", "id": name} for name in (ROOT, "i77", "i1", "i2")]
    ops += [{"op": "insert_node", "parent": "i77", "title": "x"}, {"op": "insert_node"}, {}]
    assert apply_ops(SOME, ops, 3) == SOME


def test_an_open_intent_without_children_is_deleted():
    found = apply_ops(SOME, [{"op": "delete_node", "id": "i4"}], 3)
    assert list(found) == [ROOT, "i1", "i2", "i3"]


def test_new_intents_are_numbered_on_up_to_the_limit():
    ops = [
        {"op": "insert_node", "title": "a", "score": 0.5},
        {"op": "split_node", "id": "i2", "children": [{"title": "b"}, 3, {"title": ""}]},
        {"op": "insert_node", "parent": "i1", "title": "c"},
        {"op": "insert_node", "title": "d"},
    ]
    found = apply_ops(SOME, ops, 3)
    assert [(each.id, each.parent, each.title) for each in list(found.values())[5:]] == [
        ("i5", ROOT, "a"),
        ("i6", "i2", "b"),
        ("i7", "i1", "c"),
    ]
    assert found["i5"] == intent("i5", title="a", score=0.5)
    assert len(apply_ops(SOME, ops, 1)) == len(SOME) + 1


def test_without_an_untried_intent_there_is_one_below_the_best_program():
    assert with_fallback(SOME, 4) == SOME
    done = tree(SOLVED, intent("i2", program="b" * 64, speedup=1.2), intent("i3", failed=1))
    new = with_fallback(done, 4)["i4"]
    assert (new.parent, new.score, new.difficulty, new.rating) == ("i1", 0.6, 2, 5.0)
    assert with_fallback(root_only(None), 4)["i1"].parent == ROOT
    assert names(frontier(with_fallback(done, 4), 4)) == ["i4", "i3"]


def test_the_listing_says_the_state_of_each_intent():
    some = tree(
        replace(SOLVED, why="it helps", score=0.25, rating=7.0),
        intent("i2", "i1", failed=2),
        intent("i3", program="c" * 64),
    )
    assert listing(some, None, 4).splitlines() == [
        "root [open] the reference",
        "i1 below root [solved, 1.50x] do i1 (score 0.25, difficulty 3, rating 7): it helps",
        "i2 below i1 [open, failed 2 times] do i2 (score 0, difficulty 3, rating 0)",
        "i3 below root [solved] do i3 (score 0, difficulty 3, rating 0)",
    ]


def test_the_listing_has_the_best_solved_and_the_next_open_intents():
    solved = [intent(f"i{n}", program="p", speedup=float(n)) for n in range(1, 11)]
    ready = [intent(f"i{n}", score=n / 100) for n in range(11, 25)]
    listed = [line.split()[0] for line in listing(tree(*solved, *ready), None, 4).splitlines()]
    best, following = [f"i{n}" for n in range(3, 11)], [f"i{n}" for n in range(13, 25)]
    assert listed == [ROOT, *best, *following]
    active = ready[0]
    assert len(listing(tree(*solved, *ready), active, 4).splitlines()) == len(listed) + 1


@pytest.mark.parametrize(
    ("speeds", "base", "spent"),
    [
        ([], None, False),
        ([None, None], None, False),
        ([None, None, None], None, True),
        ([1.0, 0.9, 1.0], None, False),
        ([1.0, 0.9, 1.0, 0.5], None, True),
        ([1.0, 1.1, 1.2], None, False),
        ([1.0, 1.1, 1.2], 1.2, True),
        ([1.0, 1.1, 1.3], 1.2, False),
        ([None, 1.0, 1.1], 1.2, False),
        ([None, 1.0, 1.1, 1.2], 1.2, True),
    ],
)
def test_attempts_end_after_a_window_without_progress(speeds, base, spent):
    assert is_spent(speeds, base, 3) is spent
