"""Nested outcomes: the text describes the nesting exactly, and trees come back from tensors."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.ipc.pytree import flatten, map_tensors, unflatten

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


def test_numbers_and_texts_are_part_of_the_nesting():
    x = torch.zeros(1)
    trees = ([x, 1], [x, 2], [x, True], [x, 1.0], [x, "1"], [x, "T"], [x, x], [x, None])
    assert len({flatten(tree)[1] for tree in trees}) == len(trees)


@pytest.mark.parametrize("leaf", [object(), b"T", "a" * 300])
def test_a_leaf_of_another_type_is_named_by_its_place(leaf):
    with pytest.raises(TypeError, match=r"output\[1\]\['k'\] is "):
        flatten([torch.zeros(1), {"k": leaf}])


def test_mapping_leaves_everything_but_tensors_alone():
    assert map_tensors(lambda tensor: tensor.shape, [torch.zeros(2), 3, "s"]) == [(2,), 3, "s"]
