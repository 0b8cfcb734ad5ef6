"""Intervals: what they promise is what they keep, at the few process pairs that are paid for.

Invariants: the chance that any look of a plan excludes the truth is at most 5 %, whatever the tails
of the pairs' log ratios (of a verification always; of a search and a reward as long as the device's
`spread` is what tests of programs against themselves find); an interval contains its estimate; one
pair has the interval that the spread alone gives, several that vary more than it a wider one.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.evaluation import Fidelity
from evolve.core.measurement import WIDE
from evolve.worker.base.faults import CANDIDATE, EAGER
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.session.plan import PLANS, Interim, plan_for
from evolve.worker.timing.interleaved_blocks import PairTimes
from evolve.worker.timing.statistics import (
    PRIOR_PAIRS,
    alpha_of,
    enough,
    interim_of,
    median_interval,
    ratio_interval,
    student_t,
)

TRIALS = 1500
SPREAD = 0.01


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


SHORT = [Fidelity.SCREEN, Fidelity.REWARD, Fidelity.SEARCH]  # that begin with one pair
NOISE = [normal, heavy_tailed, contaminated, between_processes]


def spread_of(noise):
    """What a test of programs against themselves finds with forty pairs, in the median."""
    return float(np.median(noise(np.random.default_rng(1), (400, 40)).std(axis=-1, ddof=1)))


def excluded_at_any_look(log_ratios, truth, fidelity, spread):
    return any(
        ratio_interval(log_ratios[: interim.pairs], interim, spread).excludes(math.exp(truth))
        for interim in PLANS[fidelity].interims
    )


def most_wrong(trials):
    """Of so many trials, where 5 % are allowed."""
    return 0.05 * trials + 2.33 * math.sqrt(0.05 * 0.95 * trials)


def search(log_ratios, spread=SPREAD):
    """The interval of a search, or of a reward, after as many pairs."""
    count = len(log_ratios)
    interims = *PLANS[Fidelity.SEARCH].interims, *PLANS[Fidelity.REWARD].interims
    (interim, *_) = (interim for interim in interims if interim.pairs == count)
    return ratio_interval(log_ratios, interim, spread)


def half_in_logs(ratio):
    return math.log(ratio.high / ratio.low) / 2


@pytest.mark.parametrize("fidelity", [*SHORT, Fidelity.VERIFY])
def test_the_looks_share_five_percent(fidelity):
    plan = PLANS[fidelity]
    assert list(plan.pairs) == sorted(set(plan.pairs))
    assert sum(map(alpha_of, plan.interims)) <= 0.05


def test_a_search_may_end_after_one_two_and_four_pairs_and_a_verification_after_eight():
    assert PLANS[Fidelity.SCREEN].pairs == (1, 3)
    assert PLANS[Fidelity.SEARCH].pairs[:3] == (1, 2, 4)
    assert PLANS[Fidelity.REWARD].pairs == (1, 3, 7)
    assert PLANS[Fidelity.VERIFY].pairs[0] == 8


def test_where_wide_intervals_will_do_a_search_has_the_looks_of_a_screen_and_short_blocks():
    device = CpuDevice()
    assert plan_for(Fidelity.SEARCH, device) == PLANS[Fidelity.SEARCH]
    device.half_width = WIDE
    assert plan_for(Fidelity.SEARCH, device).pairs == PLANS[Fidelity.SCREEN].pairs
    assert plan_for(Fidelity.REWARD, device) == PLANS[Fidelity.REWARD]
    assert plan_for(Fidelity.SCREEN, device).is_brief
    assert plan_for(Fidelity.VERIFY, device) == PLANS[Fidelity.VERIFY]


def test_the_share_of_a_look_by_ranks_is_what_counting_all_signs_gives():
    pairs = PLANS[Fidelity.VERIFY].pairs[0]
    sizes = np.linspace(1, 2, pairs) ** 2
    signs = 1 - 2 * ((np.arange(2**pairs)[:, None] >> np.arange(pairs)) & 1)
    excluded = sum(
        ratio_interval(row, PLANS[Fidelity.VERIFY].interims[0], SPREAD).excludes(1.0)
        for row in signs * sizes
    )
    assert excluded / 2**pairs == pytest.approx(alpha_of(PLANS[Fidelity.VERIFY].interims[0]))


@pytest.mark.sample(6)
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("fidelity", [Fidelity.REWARD, Fidelity.SEARCH, Fidelity.VERIFY])
def test_stopping_at_any_look_is_wrong_in_five_percent_at_most(noise, fidelity):
    rng = np.random.default_rng(7)
    truth, spread = 0.3, spread_of(noise)
    trials = TRIALS if fidelity is Fidelity.SEARCH else TRIALS // 3
    draws = truth + noise(rng, (trials, PLANS[fidelity].pairs[-1]))
    wrong = sum(excluded_at_any_look(row, truth, fidelity, spread) for row in draws)
    assert wrong <= most_wrong(trials)


@pytest.mark.parametrize("noise", NOISE)
def test_a_screen_covers_the_truth_in_nineteen_of_twenty(noise):
    """Where three processes may all be of one mode, the modes have to lie within the spread."""
    rng = np.random.default_rng(7)
    spread = 0.02 if noise is between_processes else spread_of(noise)
    wrong = sum(
        excluded_at_any_look(row, 0.0, Fidelity.SCREEN, spread) for row in noise(rng, (TRIALS, 3))
    )
    assert wrong <= most_wrong(TRIALS)


@pytest.mark.parametrize("noise", NOISE)
def test_a_verification_does_not_depend_on_what_the_device_is_said_to_vary_by(noise):
    rows = noise(np.random.default_rng(7), (20, PLANS[Fidelity.VERIFY].pairs[0]))
    for row in rows:
        first = PLANS[Fidelity.VERIFY].interims[0]
        assert ratio_interval(row, first, 1e-9) == ratio_interval(row, first, 1.0)


@pytest.mark.parametrize("fidelity", SHORT)
def test_one_pair_has_the_wide_interval_that_the_devices_spread_gives(fidelity):
    first = PLANS[fidelity].interims[0]
    ratio = ratio_interval([0.1], first, SPREAD)
    assert ratio.value == pytest.approx(math.exp(0.1))
    assert half_in_logs(ratio) == pytest.approx(
        student_t(1 - alpha_of(first) / 2, PRIOR_PAIRS) * SPREAD
    )
    assert half_in_logs(ratio) >= 3 * SPREAD
    twice = ratio_interval([0.1], first, 2 * SPREAD)
    assert half_in_logs(twice) == pytest.approx(2 * half_in_logs(ratio))


@pytest.mark.parametrize("scatter", [0.01, 0.05, 0.2])
def test_blocks_tell_how_far_off_the_ratio_of_a_pair_is(scatter):
    rng = np.random.default_rng(7)
    pairs = [
        PairTimes(blocks={"main": {side: list(times) for side, times in sides.items()}})
        for sides in (
            {CANDIDATE: 1.0 + scatter * rng.normal(size=6), EAGER: 1 + scatter * rng.normal(size=6)}
            for _ in range(TRIALS)
        )
    ]
    seen = np.sqrt(np.mean([pair.uncertainty("main", EAGER) ** 2 for pair in pairs]))
    assert seen == pytest.approx(np.std([p.log_ratio("main", EAGER) for p in pairs]), rel=0.2)


def test_a_block_that_another_process_has_disturbed_leaves_the_ratio_of_its_pair_as_certain():
    steady = {
        CANDIDATE: [1.0, 1.01, 0.99, 1.0, 1.01, 0.99],
        EAGER: [2.0, 2.02, 1.98, 2.0, 2.02, 1.98],
    }
    disturbed = steady | {EAGER: [9.0, *steady[EAGER][1:]]}
    apart = [
        PairTimes(blocks={"main": of}).uncertainty("main", EAGER) for of in (steady, disturbed)
    ]
    assert apart[1] == pytest.approx(apart[0], rel=0.5)


def test_pairs_that_vary_more_than_the_device_is_said_to_widen_the_interval():
    calm, wild = search([0.1, 0.1 - SPREAD, 0.1 + SPREAD]), search([0.1, -0.1, 0.3])
    assert calm.value == pytest.approx(wild.value)
    assert half_in_logs(wild) > 5 * half_in_logs(calm)
    assert wild.low < 1.0 < wild.high


def test_pairs_that_agree_by_chance_are_not_taken_for_certain():
    """Their own variance says nothing, the device's says how far three may all be off."""
    ratio = search([0.1, 0.1, 0.1])
    assert half_in_logs(ratio) >= SPREAD
    assert half_in_logs(search(7 * [0.1])) >= SPREAD / 2


def test_one_wild_pair_does_not_move_the_estimate():
    calm = [0.1 + 0.001 * step for step in range(7)]
    wild = [*calm[:-1], 3.0]
    before, after = search(calm), search(wild)
    assert abs(math.log(after.value / before.value)) < 0.002
    assert after.high > math.exp(3.0 / 7)


def test_more_pairs_of_the_same_noise_give_a_narrower_interval():
    rng = np.random.default_rng(3)
    widths = [
        np.median([search(row).half_width for row in normal(rng, (200, pairs))])
        for pairs in PLANS[Fidelity.SEARCH].pairs
    ]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("freedom", "probability", "quantile"),
    [
        (4, 0.975, 2.7764), (4, 0.995, 4.6041), (4, 0.999, 7.1732),
        (6, 0.975, 2.4469), (6, 0.9875, 2.9687), (6, 0.995, 3.7074),
        (10, 0.975, 2.2281), (10, 0.995, 3.1693), (10, 0.999, 4.1437),
        (30, 0.975, 2.0423), (30, 0.995, 2.7500), (30, 0.999, 3.3852),
    ],
)  # fmt: skip
def test_quantiles_of_students_t_are_those_of_the_tables(freedom, probability, quantile):
    assert student_t(probability, freedom) == pytest.approx(quantile, rel=0.01)


@given(
    st.sampled_from([1, 2, 3, 4, 7, 8]).flatmap(
        lambda n: st.lists(st.floats(-5, 5), min_size=n, max_size=n)
    )
)
def test_a_ratio_lies_in_its_interval_and_turns_with_its_sides(log_ratios):
    ratio, turned = search(log_ratios), search([-value for value in log_ratios])
    assert 0 < ratio.low <= ratio.value <= ratio.high
    assert turned.low == pytest.approx(1 / ratio.high)
    assert turned.value == pytest.approx(1 / ratio.value)


@pytest.mark.parametrize("log_ratios", [[0.1], [0.1] * 3, [], [0.1, float("nan")]])
def test_a_look_takes_its_own_number_of_finite_pairs(log_ratios):
    with pytest.raises(ValueError, match=r"pairs|finite"):
        ratio_interval(log_ratios, PLANS[Fidelity.SEARCH].interims[1], SPREAD)


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
    ratio = search([0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06])
    assert enough(ratio, 0.04)
    assert not enough(ratio, 0.015)


@pytest.mark.parametrize(("pairs", "left_out"), [(6, 0), (8, 3), (12, 13), (20, 52)])
def test_a_single_analysis_has_the_published_critical_value(pairs, left_out):
    """Wilcoxon's signed-rank test, two-sided at 5 %."""
    assert interim_of(pairs) == Interim(pairs, left_out)


def test_too_few_pairs_for_an_interval_are_refused():
    with pytest.raises(ValueError, match="take 6 or more"):
        interim_of(5)
