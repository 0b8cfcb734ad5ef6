"""Tasks whose own inputs or outputs are of 8-bit floating types.

Invariants:
- every input family that applies to wide values applies to narrow ones, within their range;
- right arithmetic on narrow values is right in every family, other arithmetic is told apart;
- a narrow outcome may be off by its own rounding, and by no more.
"""

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.worker.correctness.compare import suite_verdict
from evolve.worker.correctness.input_families import FAMILIES, transform
from tests.worker.judging import loaded_case, prepared, task_source, verdicts

TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
RIGHT, WRONG = {Status.CORRECT}, {Status.WRONG_VALUE}


def product(dtype):
    inputs = f"[torch.randn(32, 64).to({dtype}), torch.randn(64, 48).to({dtype})]"
    return loaded_case(task_source("a.float() @ b.float()", inputs, arguments="a, b"))


def scaling(dtype):
    outcome, inputs = f"(x.float() * 1.7).to({dtype})", f"[torch.randn(32, 64).to({dtype})]"
    return loaded_case(task_source(outcome, inputs))


@pytest.mark.parametrize("dtype", TYPES)
def test_families_stay_in_the_type_and_its_range(dtype):
    x = torch.randn(64, 128).to(dtype)
    for family in FAMILIES:
        (changed,) = transform([x], family, 1)
        assert changed.dtype == dtype
        assert changed.half().isfinite().all(), family


def test_most_families_apply_to_a_product_of_narrow_values():
    assert len(product(torch.float8_e4m3fn).families()) >= 8


@pytest.mark.parametrize("dtype", TYPES)
def test_a_product_of_narrow_values_is_judged_like_one_of_wide_ones(dtype):
    case = product(dtype)
    assert {*verdicts(case, lambda _, a, b: a.float() @ b.float()).values()} == RIGHT
    off = verdicts(case, lambda _, a, b: (a.float() @ b.float()) * 1.001)
    assert {*off.values()} == WRONG


@pytest.mark.parametrize("dtype", TYPES)
def test_a_narrow_outcome_may_be_off_by_its_own_rounding_only(dtype):
    case = scaling(dtype)
    assert {*verdicts(case, lambda _, x: (x.float() * 1.7).to(dtype)).values()} == RIGHT
    assert {*verdicts(case, lambda _, x: (x.float() * 2.5).to(dtype)).values()} == WRONG


def test_a_nan_in_a_narrow_outcome_is_found():
    dtype = torch.float8_e4m3fn

    def spoiled(_, x):
        y = (x.float() * 1.7).to(dtype)
        y.view(torch.uint8)[3, 5] = 0x7F
        return y

    assert {*verdicts(scaling(dtype), spoiled).values()} == WRONG


def test_the_suites_verdict_has_a_tolerance_for_narrow_outcomes():
    _, _, expected = prepared(scaling(torch.float8_e4m3fn), "task")
    (own,) = expected.reference
    assert suite_verdict([own.clone()], expected)
    assert not suite_verdict([(own.float() * 1.5).to(own.dtype)], expected)
