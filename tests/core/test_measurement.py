"""Intervals and ratios, against values worked out by hand and what has to hold for all of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.measurement import Interval, Ratio, middle, missed_target, pooled

POSITIVE = st.floats(0.01, 100)


@st.composite
def ratios(draw) -> Ratio:
    value, below, above = draw(POSITIVE), draw(st.floats(1, 3)), draw(st.floats(1, 3))
    return Ratio(value, value / below, value * above)


def wide(value: float, deviation: float) -> Interval:
    """An interval of this standard deviation."""
    return Interval(value, value - 1.96 * deviation, value + 1.96 * deviation)


@pytest.mark.parametrize("bounds", [(1.0, 1.1, 1.2), (1.0, 0.8, 0.9), (1.0, 2.0, 0.0)])
def test_an_estimate_lies_within_its_interval(bounds):
    with pytest.raises(ValueError, match="low <= value <= high"):
        Interval(*bounds)


def test_an_interval_may_have_no_width():
    assert Interval(1.0, 1.0, 1.0).half_width == 0


@pytest.mark.parametrize(
    ("interval", "half_width"),
    [
        (Interval(4.0, 3.0, 5.0), 0.25),
        (Interval(4.0, 3.5, 5.5), 0.25),
        (Interval(-4.0, -5.0, -3.0), 0.25),
        (Interval(0.0, -1.0, 1.0), math.inf),
    ],
)
def test_half_a_width_is_relative_to_the_value(interval, half_width):
    assert interval.half_width == half_width


def test_an_interval_holds_its_bounds():
    interval = Interval(1.0, 0.5, 2.0)
    assert [interval.excludes(x) for x in (0.49, 0.5, 1.0, 2.0, 2.01)] == [
        True, False, False, False, True,
    ]  # fmt: skip


@given(ratios())
def test_an_interval_is_read_back_as_it_was_written(ratio):
    assert Interval.from_json(ratio.to_json()).to_json() == [ratio.value, ratio.low, ratio.high]
    assert isinstance(Ratio.from_json(ratio.to_json()), Ratio)


@pytest.mark.parametrize(("low", "gains"), [(1.0001, True), (1.0, False), (0.9, False)])
def test_a_gain_lies_above_1_as_a_whole(low, gains):
    assert Ratio(1.2, low, 1.5).is_gain is gains


def test_a_quotient_adds_the_variances_of_the_logs():
    """4 of 2 to 8 over 1 of 1/8 to 4: hypot(ln 2, ln 4) below, hypot(ln 2, ln 8) above."""
    found = Ratio(4.0, 2.0, 8.0) / Ratio(1.0, 0.125, 4.0)
    two = math.log(2)
    assert found.value == pytest.approx(4.0)
    assert math.log(found.low) == pytest.approx(math.log(4) - math.hypot(two, 2 * two))
    assert math.log(found.high) == pytest.approx(math.log(4) + math.hypot(two, 3 * two))


@given(ratios(), POSITIVE)
def test_what_is_known_exactly_adds_no_width(ratio, exact):
    found = ratio / Ratio(exact, exact, exact)
    assert found.low == pytest.approx(ratio.low / exact)
    assert found.high == pytest.approx(ratio.high / exact)


@given(ratios(), ratios())
def test_a_quotient_the_other_way_round_is_its_inverse(one, other):
    there, back = one / other, other / one
    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    assert there.high * back.low == pytest.approx(1)


@given(ratios())
def test_a_ratio_is_that_of_its_logs(ratio):
    logs = ratio.log()
    assert logs.value == math.log(ratio.value)
    assert Ratio.exp(logs).to_json() == pytest.approx(ratio.to_json())


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([5.0], 5.0),
        ([1.0, 3.0], 2.0),
        ([3.0, 1.0, 5.0], 3.0),  # a quarter of three is none
        ([2.0, 1.0, 90.0, 4.0], 3.0),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 90.0, 99.0], 3.75),  # two at each end
    ],
)
def test_the_middle_is_the_mean_without_a_quarter_at_each_end(times, expected):
    assert middle(times) == expected


@given(st.lists(POSITIVE, min_size=1, max_size=20), POSITIVE)
def test_an_outlier_moves_the_middle_no_further_than_the_others_reach(times, factor):
    assert min(times) <= middle(times) * (1 + 1e-9)
    assert middle(times) <= max(times) * (1 + 1e-9)
    assert middle([one * factor for one in times]) == pytest.approx(middle(times) * factor)


def test_a_single_estimate_stays_as_it_is():
    lopsided = Interval(1.0, 0.5, 4.0)
    assert pooled([lopsided]) == lopsided


@pytest.mark.parametrize(
    ("estimates", "value", "half"),
    [
        # alike: the error of a mean of two
        ([wide(1.0, 0.1), wide(1.0, 0.1)], 1.0, 1.96 * 0.1 / math.sqrt(2)),
        # weights 100 and 25; chi2 = 0.05^2 * 80 = 0.2 widens nothing
        ([wide(0.0, 0.1), wide(0.1, 0.2)], 0.02, 1.96 / math.sqrt(125)),
        # ten deviations apart: chi2 = 50 over one degree of freedom, sqrt(50 / 200) = 0.5
        ([wide(0.0, 0.1), wide(1.0, 0.1)], 0.5, 1.96 * 0.5),
        # chi2 = 100 * 6 / 9 over two, sqrt(100 / 3 / 300) = 1 / 3
        ([wide(0.0, 0.1), wide(0.0, 0.1), wide(1.0, 0.1)], 1 / 3, 1.96 / 3),
    ],
)
def test_estimates_are_pooled_by_their_precision(estimates, value, half):
    found = pooled(estimates)
    assert found.value == pytest.approx(value)
    assert found.high - found.value == pytest.approx(half)
    assert found.value - found.low == pytest.approx(half)


def test_what_is_exact_outweighs_the_rest():
    found = pooled([Interval(2.0, 2.0, 2.0), wide(2.0, 0.1)])
    assert found.value == pytest.approx(2.0)
    assert found.half_width == pytest.approx(0, abs=1e-8)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.01, 2)), min_size=2, max_size=6))
def test_pooling_does_not_depend_on_the_order(pairs):
    estimates = [wide(*pair) for pair in pairs]
    one, other = pooled(estimates), pooled(estimates[::-1])
    assert one.to_json() == pytest.approx(other.to_json())
    assert min(value for value, _ in pairs) - 1e-9 <= one.value
    assert one.value <= max(value for value, _ in pairs) + 1e-9


@pytest.mark.parametrize(
    ("target_speedups", "missed"),
    [
        ({}, None),
        ({"eager": 1.5}, None),  # the interval reaches it
        ({"eager": 1.51}, "eager"),
        ({"compile": 9.0}, None),  # not measured
        ({"compile": 9.0, "eager": 2.0}, "eager"),
    ],
)
def test_a_bar_is_missed_where_the_whole_interval_is_below(target_speedups, missed):
    assert missed_target({"eager": Ratio(1.2, 1.0, 1.5)}, target_speedups) == missed
