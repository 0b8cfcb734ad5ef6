"""Input families: they show what a task's usual values hide, and never leave what those allow.

Invariants: a family is a function of inputs, name and seed; integers, simplices, directions,
symmetric and triangular matrices, bounds and signs are kept; a family in which the reference is not
finite or not exact enough does not apply; a support is what its definition says, though all of it
is read at once.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.worker.correctness.compare import judge
from evolve.worker.correctness.input_families import FAMILIES, support_of, transform
from tests.worker.judging import loaded_case, task_source

SHAPE = "32, 64"
DRAWS = {
    "normal": f"torch.randn({SHAPE})",
    "uniform": f"torch.rand({SHAPE})",
    "symmetric uniform": f"torch.rand({SHAPE}) * 2 - 1",
    "positive": f"torch.randn({SHAPE}).exp()",
    "away from zero": f"torch.rand({SHAPE}) + 0.5",
    "negative": f"-torch.rand({SHAPE})",
}


def families_of(draw, outcome="x"):
    return set(loaded_case(task_source(outcome, f"[{draw}]")).families())


def test_values_of_either_sign_are_tried_in_every_family():
    stand_ins = {name for name, family in FAMILIES.items() if family.stands_in}
    assert families_of(DRAWS["normal"]) == set(FAMILIES) - stand_ins


def test_the_task_itself_always_comes_first():
    for draw in DRAWS.values():
        assert loaded_case(task_source("x", f"[{draw}]")).families()[0] == "task"


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("seed", range(3))
def test_no_family_leaves_the_range_that_the_tasks_own_values_show(draw, seed):
    case = loaded_case(task_source("x", f"[{DRAWS[draw]}]"))
    own = case.inputs(seed)[0]
    support = support_of(own)
    bounded = {"uniform": (0, 1), "symmetric uniform": (-1, 1), "away from zero": (0.5, 1.5),
               "negative": (-1, 0), "positive": (0, float("inf"))}  # fmt: skip
    low, high = bounded.get(draw, (-float("inf"), float("inf")))
    for family in case.families():
        values = case.inputs(seed, family)[0]
        assert support.contains(values)
        assert low <= values.min() and values.max() <= high


@pytest.mark.parametrize(
    "draw",
    [
        "torch.randint(0, 9, (32, 64))",
        "torch.randint(0, 9, (32, 64)).float()",
        "(torch.rand(32, 64) > 0.5).float()",
        "torch.softmax(torch.randn(32, 64), -1)",
        "F.normalize(torch.randn(32, 64), dim=-1)",
        "torch.full((32, 64), 0.3)",
        "torch.randn(3)",
        "torch.randn(32, 64).masked_fill(torch.eye(32, 64) > 0, float('-inf'))",
    ],
)
def test_labels_masks_simplices_directions_and_settings_stay_as_they_are(draw):
    assert families_of(draw) == {"task"}


def test_a_symmetric_matrix_stays_symmetric():
    case = loaded_case(task_source("x", "[(lambda a: a + a.T)(torch.randn(48, 48))]"))
    assert len(case.families()) > 1
    for family in case.families():
        values = case.inputs(1, family)[0]
        assert torch.equal(values, values.T)


def test_a_triangular_matrix_stays_triangular():
    case = loaded_case(task_source("x", "[torch.randn(48, 48).triu()]"))
    assert "heterogeneous_rows" in case.families()
    for family in case.families():
        values = case.inputs(1, family)[0]
        assert torch.equal(values, values.triu())


def test_integers_beside_floating_inputs_are_untouched():
    source = task_source(
        "F.cross_entropy(x, y)",
        "[torch.randn(32, 64), torch.randint(0, 64, (32,))]",
        arguments="x, y",
    )
    case = loaded_case(source)
    labels = case.inputs(1)[1]
    for family in case.families():
        assert torch.equal(case.inputs(1, family)[1], labels)


def test_a_family_that_makes_the_reference_infinite_does_not_apply():
    assert "scaled_up" not in families_of("torch.randn(32, 64)", "x.exp()")
    assert "scaled_up" in families_of("torch.randn(32, 64)", "torch.softmax(x, -1)")


def test_a_family_that_the_reference_refuses_does_not_apply():
    source = task_source("self.small(x)", "[torch.randn(32, 64)]").replace(
        "    def forward",
        "    def small(self, x):\n"
        "        if x.abs().max() > 20:\n"
        "            raise ValueError('too large')\n"
        "        return x\n\n    def forward",
    )
    families = loaded_case(source).families()
    assert "scaled_down" in families
    assert "scaled_up" not in families


def test_ties_are_left_out_where_equal_values_could_come_in_any_order():
    assert "ties" in families_of("torch.randn(32, 64)", "x.sort(-1).values")
    assert "ties" not in families_of("torch.randn(32, 64)", "x.sort(-1)")


def test_the_last_element_of_every_row_counts_where_most_do_not():
    case = loaded_case(task_source("x", "[torch.randn(32, 64)]"))
    own, sparse = case.inputs(1)[0], case.inputs(1, "sparse")[0]
    assert torch.equal(own[:, -1], sparse[:, -1])
    assert sparse.norm() < own.norm() / 2


def test_opposed_tensors_lie_on_either_side_of_zero_whatever_stands_between_them():
    draw = "torch.randn(32, 64), torch.randint(0, 9, (32,)), torch.randn(32, 64)"
    case = loaded_case(task_source("x @ z.T", f"[{draw}]", arguments="x, y, z"))
    x, _, z = case.inputs(1, "opposed")
    assert x.max() < 0 < z.min()


def test_far_below_no_value_has_an_exponential_in_single_precision():
    below = loaded_case(task_source("x", f"[{DRAWS['normal']}]")).inputs(1, "far_below")[0]
    assert not below.exp().any()


def test_an_unknown_family_is_named_with_the_known_ones():
    with pytest.raises(UsageError, match=r"'spares'.*sparse"):
        transform([torch.randn(32, 64)], "spares", 1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    family=st.sampled_from(sorted(FAMILIES)),
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]),
)
def test_a_family_is_a_function_of_inputs_name_and_seed(seed, family, shape, dtype):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    kept = values.clone()
    one, other = (transform([values], family, seed)[0] for _ in range(2))
    assert torch.equal(one, other)
    assert (one.shape, one.dtype) == (values.shape, values.dtype)
    assert torch.equal(values, kept)


@pytest.mark.sample(1)
@pytest.mark.parametrize("row", [0, -1])
def test_a_row_whose_maximum_stands_for_those_of_all_is_found_for_any_seed(row):
    case = loaded_case(task_source("torch.softmax(x, -1)", "[torch.randn(24, 512)]"))
    model = case.model(1)
    for seed in range(40):
        (x,) = case.inputs(seed, "heterogeneous_rows")
        expected = case.expected(model, [x], "heterogeneous_rows")
        powers = torch.exp(x - x[row].max())
        outcome = [powers / powers.sum(-1, keepdim=True)]
        assert judge(case, outcome, "T", expected, [x]).status is Status.WRONG_VALUE


def test_rows_of_products_that_would_overflow_in_half_precision_are_made_smaller_instead():
    draw = "torch.randn(256, 768).half(), torch.randn(768, 256).half()"
    case = loaded_case(task_source("x @ y", f"[{draw}]", arguments="x, y"))
    assert "heterogeneous_rows" not in case.families()
    assert "shrunk_rows" in case.families()
    rows = case.inputs(1, "shrunk_rows")[0].float().norm(dim=1)
    assert rows.max() > 256 * rows.min()


def test_a_family_stands_in_only_where_the_other_does_not_apply():
    families = families_of("torch.randn(32, 64)", "torch.softmax(x, -1)")
    assert "heterogeneous_rows" in families
    assert "shrunk_rows" not in families


def plainly_support(x):
    """A tensor's support, one fact after the other: low, high, deviation, and what may be done."""
    low, high = (float(bound) for bound in (x.min(), x.max()))
    sample = x.reshape(-1).double()
    rows = x.reshape(-1, x.shape[-1])[:64].double()
    sizes = (rows.sum(dim=1), rows.norm(dim=1))
    if len(rows) == 1:
        is_fixed = any(float((of - 1).abs()) < 1e-3 for of in sizes)
    else:
        is_fixed = any(float(of.std()) < 3e-4 * float(of.mean().abs()) for of in sizes)
    if not -float("inf") < low < high < float("inf"):
        return None
    if torch.equal(sample, sample.round()) or is_fixed:
        return None
    middle, deviation = float(sample.mean()), float(sample.std())
    if max(high - middle, middle - low) > 2 * deviation:
        low = 0.0 if low >= 0 else -float("inf")
        high = 0.0 if high <= 0 else float("inf")
    elif 0 < low < 1e-2 * deviation:
        low = 0.0
    scalable = low <= 0 <= high
    symmetric = x.dim() > 1 and x.shape[-1] == x.shape[-2] and torch.equal(x, x.mT)
    structured = float((sample == 0).double().mean()) > 0.05
    return low, high, deviation, scalable, scalable and not symmetric, not (structured or symmetric)


SHAPES_OF_DATA = st.sampled_from([(8,), (1, 64), (9, 33), (40, 40), (2, 20, 20), (70, 5, 3)])
MADE = {
    "normal": lambda x: x,
    "uniform": lambda x: torch.special.ndtr(x.double()).to(x.dtype),
    "shifted": lambda x: x.abs() + 2,
    "negative": lambda x: -x.abs(),
    "integral": torch.round,
    "simplices": lambda x: torch.softmax(x.double(), -1).to(x.dtype),
    "directions": lambda x: torch.nn.functional.normalize(x.double(), dim=-1).to(x.dtype),
    "symmetric": lambda x: x + x.mT if x.dim() > 1 and x.shape[-1] == x.shape[-2] else x,
    "nearly symmetric": lambda x: nearly_symmetric(x),
    "sparse": lambda x: x * (x > 0),
    "constant": lambda x: torch.full_like(x, 0.3),
    "infinite": lambda x: torch.where(x > 2, torch.inf, x),
    "not a number": lambda x: torch.where(x > 1, torch.nan, x),
}


def nearly_symmetric(x):
    """But for the last element of the first row, beyond the corner that is looked at first."""
    x = MADE["symmetric"](x).clone()
    x.view(-1, x.shape[-1])[0, -1] += 1
    return x


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(MADE)),
    SHAPES_OF_DATA,
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    st.integers(0, 9),
)
def test_a_support_is_what_its_definition_says(made, shape, dtype, seed):
    draws = torch.Generator().manual_seed(seed)
    x = MADE[made](torch.randn(shape, generator=draws).to(dtype))
    support = support_of(x)
    found = support and (support.low, support.high, support.deviation, support.scalable,
                         support.rows_free, support.fillable)  # fmt: skip
    assert found == plainly_support(x)
