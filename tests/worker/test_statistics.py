"""Intervals: what they promise is what they keep, at the few process pairs that are paid for.

Invariants: the chance that any look of a plan excludes the truth is at most 5 %, whatever the tails
of the pairs' log ratios (at three pairs, as long as modes of processes are within 3 %); a screen is
wider than a search; an interval contains its estimate.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.evaluation import Fidelity
from evolve.worker.statistics import alpha_at, enough, looks, median_interval, ratio_interval

TRIALS = 1500


def normal(rng, shape):
    return rng.normal(0, 0.01, shape)


def heavy_tailed(rng, shape):
    return 0.005 * rng.standard_t(1.5, shape)


def contaminated(rng, shape):
    slow = rng.random(shape) < 0.1
    return rng.normal(0, 0.003, shape) + slow * rng.normal(0, 0.2, shape)


def between_processes(rng, shape):
    """A process is fast or slow as a whole; its blocks agree, so blocks would look certain."""
    process = rng.choice([-0.02, 0.0, 0.02], shape)
    blocks = rng.normal(0, 0.001, (*shape, 5))
    return process + np.median(blocks, axis=-1)


NOISE = [normal, heavy_tailed, contaminated, between_processes]


def excluded_at_any_look(log_ratios, truth, fidelity):
    plan = enumerate(looks(fidelity))
    return any(
        ratio_interval(log_ratios[:pairs], look, fidelity).excludes(math.exp(truth))
        for look, pairs in plan
    )


def test_the_looks_share_five_percent():
    for fidelity in (Fidelity.REWARD, Fidelity.SEARCH, Fidelity.VERIFY):
        plan = looks(fidelity)
        assert list(plan) == sorted(set(plan))
        assert sum(alpha_at(fidelity, look) for look in range(len(plan))) <= 0.05
    assert looks(Fidelity.SCREEN) == (3,)
    assert looks(Fidelity.VERIFY)[0] > looks(Fidelity.SEARCH)[0]


def test_the_share_of_a_look_is_what_counting_all_signs_gives():
    pairs = looks(Fidelity.SEARCH)[1]
    sizes = np.linspace(1, 2, pairs) ** 2
    signs = 1 - 2 * ((np.arange(2**pairs)[:, None] >> np.arange(pairs)) & 1)
    excluded = sum(ratio_interval(row, 1, Fidelity.SEARCH).excludes(1.0) for row in signs * sizes)
    assert excluded / 2**pairs == pytest.approx(alpha_at(Fidelity.SEARCH, 1))


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("fidelity", [Fidelity.REWARD, Fidelity.SEARCH, Fidelity.VERIFY])
def test_stopping_at_any_look_is_wrong_in_five_percent_at_most(noise, fidelity):
    rng = np.random.default_rng(7)
    truth = 0.3
    trials = TRIALS if fidelity is Fidelity.SEARCH else TRIALS // 3
    draws = truth + noise(rng, (trials, looks(fidelity)[-1]))
    wrong = sum(excluded_at_any_look(row, truth, fidelity) for row in draws)
    assert wrong <= 0.05 * trials + 2.33 * math.sqrt(0.05 * 0.95 * trials)


@pytest.mark.parametrize(
    ("noise", "floor"), [(normal, 0.0), (heavy_tailed, 0.0), (between_processes, 0.02)]
)
def test_a_screen_covers_the_truth_in_nineteen_of_twenty(noise, floor):
    rng = np.random.default_rng(7)
    wrong = sum(
        ratio_interval(row, 0, Fidelity.SCREEN, noise_floor=floor).excludes(1.0)
        for row in noise(rng, (TRIALS, 3))
    )
    assert wrong <= 0.05 * TRIALS + 2.33 * math.sqrt(0.05 * 0.95 * TRIALS)


def test_one_wild_pair_does_not_move_the_estimate():
    calm = [0.1 + 0.001 * step for step in range(7)]
    wild = [*calm[:-1], 3.0]
    before, after = (ratio_interval(row, 1, Fidelity.SEARCH).value for row in (calm, wild))
    assert abs(math.log(after / before)) < 0.002


def test_more_pairs_of_the_same_noise_give_a_narrower_interval():
    rng = np.random.default_rng(3)
    widths = []
    for look, pairs in enumerate(looks(Fidelity.SEARCH)):
        rows = normal(rng, (200, pairs))
        widths.append(
            np.median([ratio_interval(row, look, Fidelity.SEARCH).half_width for row in rows])
        )
    assert widths == sorted(widths, reverse=True)


def test_three_pairs_that_agree_by_chance_are_not_enough_for_a_search():
    ratio = ratio_interval([0.1, 0.1, 0.1], 0, Fidelity.SEARCH)
    assert looks(Fidelity.SEARCH)[0] == 3
    assert ratio.half_width >= 0.03


def test_the_noise_floor_widens_a_screen():
    row = [0.1, 0.1, 0.1]
    bare = ratio_interval(row, 0, Fidelity.SCREEN)
    floored = ratio_interval(row, 0, Fidelity.SCREEN, noise_floor=0.02)
    assert bare.half_width == pytest.approx(0)
    assert floored.low == pytest.approx(math.exp(0.08))
    assert floored.high == pytest.approx(math.exp(0.12))


@given(st.lists(st.floats(-5, 5), min_size=7, max_size=7))
def test_a_ratio_lies_in_its_interval_and_turns_with_its_sides(log_ratios):
    ratio = ratio_interval(log_ratios, 1, Fidelity.SEARCH)
    turned = ratio_interval([-value for value in log_ratios], 1, Fidelity.SEARCH)
    assert 0 < ratio.low <= ratio.value <= ratio.high
    assert turned.low == pytest.approx(1 / ratio.high)
    assert turned.value == pytest.approx(1 / ratio.value)


@pytest.mark.parametrize("log_ratios", [[0.1] * 6, [0.1] * 8, [], [0.1] * 6 + [float("nan")]])
def test_a_look_takes_its_own_number_of_finite_pairs(log_ratios):
    with pytest.raises(ValueError, match=r"pairs|finite"):
        ratio_interval(log_ratios, 1, Fidelity.SEARCH)


@pytest.mark.parametrize("count", [6, 9, 15, 30, 101])
def test_a_median_is_covered_in_nineteen_of_twenty(count):
    rng = np.random.default_rng(count)
    rows = rng.lognormal(0.0, 0.5, (600, count))
    wrong = sum(median_interval(row).excludes(1.0) for row in rows)
    assert wrong <= 0.05 * 600 + 2.33 * math.sqrt(0.05 * 0.95 * 600)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_a_median_lies_between_its_bounds(times):
    interval = median_interval(times)
    assert min(times) <= interval.low <= interval.value <= interval.high <= max(times)


def test_no_times_have_no_median():
    with pytest.raises(ValueError, match="no times"):
        median_interval([])


def test_enough_compares_the_relative_half_width():
    ratio = ratio_interval([0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06], 1, Fidelity.SEARCH)
    assert enough(ratio, 0.04)
    assert not enough(ratio, 0.02)
