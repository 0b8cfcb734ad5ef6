"""Nested outcomes: the text describes the nesting exactly, and trees come back from tensors.

Invariants: the text is ASCII and fits a message, whatever the tree; a tree that cannot be walked
through is refused with the place and the reason, and nothing else is raised.
"""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.ipc.pytree import NestingError, flatten, map_tensors, unflatten
from tests.worker.records import Lacking, Node, Single

TREES = st.recursive(
    st.none()
    | st.integers(0, 3).map(lambda size: torch.full((size,), 1.0))
    | st.sampled_from([0, 1, True, 1.0, "T", "1", "a,T"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(TREES)
def test_a_tree_comes_back_from_its_tensors(tree):
    tensors, spec = flatten(tree)
    assert flatten(unflatten(tensors, tree)) == (tensors, spec)


@given(TREES, TREES)
def test_trees_of_one_text_have_as_many_tensors(one, other):
    if flatten(one)[1] == flatten(other)[1]:
        assert len(flatten(one)[0]) == len(flatten(other)[0])


def test_a_list_is_no_tuple_and_nesting_counts():
    x = torch.zeros(1)
    specs = {flatten(tree)[1] for tree in (x, [x], (x,), ([x],), [[x]], {"a": x}, [x, None])}
    assert len(specs) == 7


@dataclass(frozen=True)
class Outcome:
    loss: torch.Tensor
    cache: tuple | None = None
    count: int = 3


class State(NamedTuple):
    hidden: torch.Tensor
    cell: torch.Tensor


def test_an_object_of_a_dataclass_is_the_dict_of_its_fields_and_stays_such():
    x = torch.zeros(1)
    tree = Outcome(x, (x, None))
    assert flatten(tree)[1] == flatten({"loss": x, "cache": (x, None), "count": 3})[1]
    mapped = map_tensors(lambda tensor: tensor + 1, tree)
    assert (type(mapped), mapped.loss.item(), mapped.cache[0].item()) == (Outcome, 1, 1)
    assert tree.loss.item() == 0


def test_a_named_tuple_stays_such():
    mapped = map_tensors(torch.neg, State(torch.ones(1), torch.ones(2)))
    assert (mapped.hidden.item(), mapped.cell.shape) == (-1, (2,))


class Step(State):
    def __new__(cls, hidden):
        return super().__new__(cls, hidden, 3)


def test_a_named_tuple_with_a_constructor_of_its_own_stays_such():
    mapped = map_tensors(torch.neg, Step(torch.ones(1)))
    assert (type(mapped), mapped.hidden.item(), mapped.cell) == (Step, -1, 3)


class Mute:
    def __str__(self):
        raise LookupError


def ring(made):
    if isinstance(made, dict):
        made["k"] = made
    else:
        made.append(made)
    return made


X = torch.zeros(1)
DEEP = [X]
for _ in range(5000):
    DEEP = [DEEP]
UNWALKED = {
    "a field without a value": (Lacking(X), ".y, a field of Lacking, has no value"),
    "an object that holds itself": (Node(X).closed(), "holds itself"),
    "a list that holds itself": (ring([X]), "holds itself"),
    "a dict that holds itself": (ring({"x": X}), "holds itself"),
    "deep nesting": (DEEP, "100 levels deep"),
    "a key without a text": ({Mute(): X}, "key without a text"),
    "a key of thousands of digits": ({10**5000: X}, "key without a text"),
}


@pytest.mark.parametrize("kind", UNWALKED)
def test_a_tree_that_cannot_be_walked_through_is_refused_with_its_place(kind):
    tree, said = UNWALKED[kind]
    for walk in (flatten, lambda it: map_tensors(torch.neg, it)):
        with pytest.raises(NestingError) as refusal:
            walk([X, tree])
        assert str(refusal.value).startswith("output[1]")
        assert said in str(refusal.value)
        assert len(str(refusal.value)) < 200


def test_an_object_that_cannot_be_copied_is_refused_with_its_place():
    assert flatten(Single(X))[1] == "{x:T}"
    with pytest.raises(NestingError, match=r"given\[0\]\['k'\], of type Single, .*no copies"):
        map_tensors(torch.neg, [{"k": Single(X)}], "given")


LONG = {
    "many texts": ["a" * 190] * 300_000,
    "many numbers": list(range(100_000)),
    "many tensors": [X] * 100_000,
    "many absent ones": [None] * 100_000,
    "long keys": {"a" * 100_000: X},
    "many keys": dict.fromkeys(range(100_000), None),
}


@pytest.mark.parametrize("kind", LONG)
def test_a_text_that_no_message_holds_is_refused(kind):
    with pytest.raises(NestingError, match="more than 65535 characters"):
        flatten([X, LONG[kind]])


def test_a_shared_list_that_stands_for_billions_of_items_is_refused_at_once():
    tree = [X]
    for _ in range(60):
        tree = [tree, tree]
    with pytest.raises(NestingError, match="more than 65535 characters"):
        flatten(tree)


@given(
    st.recursive(
        st.text() | st.integers() | st.floats(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_every_text_can_be_sent(tree):
    text = "\ud800 \u202e é"
    assert flatten([tree, text, {text: X}])[1].isascii()


def test_numbers_and_texts_are_part_of_the_nesting():
    x = torch.zeros(1)
    trees = ([x, 1], [x, 2], [x, True], [x, 1.0], [x, "1"], [x, "T"], [x, x], [x, None])
    assert len({flatten(tree)[1] for tree in trees}) == len(trees)


LEAVES = [object(), b"T", "a" * 300, 10**300, -(10**5000)]


@pytest.mark.parametrize("leaf", LEAVES, ids=range(len(LEAVES)))
def test_a_leaf_of_another_type_is_named_by_its_place(leaf):
    with pytest.raises(TypeError, match=r"output\[1\]\['k'\] is "):
        flatten([torch.zeros(1), {"k": leaf}])


def test_mapping_leaves_everything_but_tensors_alone():
    assert map_tensors(lambda tensor: tensor.shape, [torch.zeros(2), 3, "s"]) == [(2,), 3, "s"]
