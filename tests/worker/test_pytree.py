"""Nested outcomes: the text describes the nesting exactly, and trees come back from tensors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.ipc.pytree import flatten, map_tensors, unflatten

TREES = st.recursive(
    st.none() | st.integers(0, 3).map(lambda size: torch.full((size,), 1.0)),
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


def test_a_leaf_that_is_no_tensor_is_named_by_its_place():
    with pytest.raises(TypeError, match=r"output\[1\]\['k'\] is a float"):
        flatten([torch.zeros(1), {"k": 0.5}])


def test_mapping_leaves_everything_but_tensors_alone():
    assert map_tensors(lambda tensor: tensor.shape, [torch.zeros(2), 3, "s"]) == [(2,), 3, "s"]
