"""Measured ceilings and the floor under a time.

Invariants:
- a rate is positive, measured once, and never lower for a smaller working set;
- the floor is the longer of moving and computing, and says which it is.
"""

import pytest
import torch

from evolve.worker.timing.reference_cost import Cost
from evolve.worker.timing.roofline import Roofline

pytestmark = pytest.mark.quiet

MB = 1 << 20


@pytest.fixture(scope="module")
def ceilings() -> Roofline:
    return Roofline(torch.device("cpu"))


@pytest.mark.parametrize("rate", ["copy_rate", "write_rate"])
def test_smaller_working_sets_are_never_slower(ceilings, rate):
    rates = [getattr(ceilings, rate)(size) for size in (1, 32 * MB, 128 * MB, 1 << 40)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 1e8
    assert getattr(ceilings, rate)(1) == rates[0]


def test_arithmetic_that_a_device_lacks_has_no_rate(ceilings):
    assert ceilings.flop_rate("fp8") is None
    assert ceilings.flop_rate("int8") is None
    assert ceilings.flop_rate("fp32", "tf32") == ceilings.flop_rate("fp32") > 1e8


def test_the_floor_is_the_longer_of_moving_and_computing(ceilings):
    moving = Cost(moved_bytes=100 * MB, output_bytes=MB, flops={"fp32": 1}, operations=0)
    computing = Cost(moved_bytes=8, output_bytes=8, flops={"fp32": 10**12}, operations=0)
    neither = Cost(moved_bytes=8, output_bytes=8, flops={}, operations=0)
    floor = ceilings.floor(moving, "ieee", calls=1)
    assert floor.basis == "memory"
    assert floor.seconds == pytest.approx(100 * MB / ceilings.copy_rate(100 * MB))
    floor = ceilings.floor(computing, "ieee", calls=1)
    assert floor.basis == "fp32 arithmetic"
    assert floor.seconds == pytest.approx(1e12 / ceilings.flop_rate("fp32"))
    assert floor.flops_per_s == pytest.approx(ceilings.flop_rate("fp32"))
    assert ceilings.floor(neither, "ieee", calls=1).flops_per_s is None


RATES = {"fp32": 50e12, "tf32": 400e12, "bf16": 800e12, "fp16": 790e12}


@pytest.mark.parametrize(
    ("rates", "accumulation", "rate", "basis"),
    [
        (RATES, "ieee", 800e12 / 3, "bf16x3 arithmetic"),
        (RATES | {"bf16": None}, "ieee", 400e12 / 3, "tf32x3 arithmetic"),
        (RATES, "tf32", 790e12, "fp16 arithmetic"),  # which has as many bits
        (RATES | {"fp16": None}, "tf32", 400e12, "tf32 arithmetic"),
        (RATES, "half", 790e12, "fp16 arithmetic"),
        (RATES | {"tf32": None}, "ieee", 50e12, "fp32 arithmetic"),
    ],
    ids=[
        *("in three parts", "by what there is", "allowed tf32", "tf32 by what there is"),
        *("allowed half", "no tensor cores"),
    ],
)
def test_products_in_fp32_are_as_fast_as_tensor_cores_can_make_them(
    monkeypatch, rates, accumulation, rate, basis
):
    monkeypatch.setattr(
        Roofline,
        "_measured",
        lambda _, what, which: rates.get(which) if what == "product" else 1e12,
    )
    ceilings = Roofline(torch.device("cpu"))
    assert ceilings.flop_rate("fp32", accumulation) == pytest.approx(rate)
    cost = Cost(moved_bytes=8, output_bytes=8, flops={"fp32": 10**12}, operations=0)
    assert ceilings.floor(cost, accumulation, calls=1).basis == basis


def test_what_torch_rounds_to_tf32_may_be_rounded_to_float16(monkeypatch):
    rate = lambda _, what, which: RATES.get(which) if what == "product" else 1e12  # noqa: E731
    monkeypatch.setattr(Roofline, "_measured", rate)
    assert Roofline(torch.device("cpu")).flop_rate("tf32") == pytest.approx(790e12)


def test_operations_without_a_known_rate_do_not_count(ceilings):
    cost = Cost(moved_bytes=8, output_bytes=8, flops={"fp8": 10**15}, operations=0)
    assert ceilings.floor(cost, "ieee", calls=1).basis == "memory"
