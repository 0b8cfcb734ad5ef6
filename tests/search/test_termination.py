"""Termination rules: a reason exactly when a limit of the recorded progress is reached.

Invariants:
1. `check` gives a reason if and only if `used` is 1.
2. Any fires with its first rule, all fires with its last.
3. An unknown cost stops a run with a cost limit.
4. A limit on seconds fires early by what is kept back for a verification, and says so.
5. A wrong `termination.*` is a UsageError that names the setting.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.measurement import Ratio
from evolve.core.protocols import Progress
from evolve.search.termination import (
    Limit,
    StopRequested,
    format_duration,
    from_config,
    parse_duration,
)

BEST = Ratio(2.0, 1.9, 2.1)


@pytest.mark.parametrize(
    ("rule", "before", "after", "reason"),
    [
        (
            Limit("evaluations", 400),
            Progress(evaluations=399, screens=900),
            Progress(evaluations=400),
            "400 of 400 evaluations used",
        ),
        (
            Limit("proposals", 9),
            Progress(proposals=8),
            Progress(proposals=9),
            "9 of 9 proposals used",
        ),
        (Limit("tokens", 10), Progress(tokens=9), Progress(tokens=12), "12 of 10 tokens used"),
        (
            Limit("wall_time", 9000),
            Progress(wall_time_s=8999),
            Progress(wall_time_s=9001),
            "2h30m1s of 2h30m wall time used",
        ),
        (
            Limit("device_time", 60),
            Progress(device_time_s=59, wall_time_s=999),
            Progress(device_time_s=60.5),
            "1m of 1m device time used",
        ),
        (Limit("usd", 20), Progress(usd=19.99), Progress(usd=20.004), "20.00 of 20.00 USD used"),
        (
            Limit("usd", 20),
            Progress(usd=0.0),
            Progress(usd=None),
            "cost unknown: a model has no price, and termination.usd=20 is set",
        ),
        (
            Limit("stagnation", 50),
            Progress(evaluations=149, evaluations_at_best=100),
            Progress(evaluations=150, evaluations_at_best=100),
            "50 evaluations without a clear gain",
        ),
        (
            Limit("target_speedup", 1.9),
            Progress(best=Ratio(2.0, 1.89, 2.1)),
            Progress(best=BEST),
            "speedup 1.9 or more reached, target 1.9",
        ),
        (
            Limit("target_speedup", 1.9),
            Progress(),
            Progress(best=BEST),
            "speedup 1.9 or more reached, target 1.9",
        ),
        (
            Limit("speed_of_light", 0.9),
            Progress(speed_of_light=0.89),
            Progress(speed_of_light=0.93),
            "93% of the speed of light reached, target 90%",
        ),
        (
            StopRequested(),
            Progress(),
            Progress(stop_requested="STOP file found"),
            "STOP file found",
        ),
    ],
)
def test_a_rule_fires_at_its_limit_with_its_reason(rule, before, after, reason):
    assert rule.check(before) is None
    assert rule.used(before) < 1
    assert rule.check(after) == reason
    assert rule.used(after) == 1


def test_any_fires_with_its_first_rule_and_all_with_its_last():
    many, long = Progress(evaluations=5), Progress(evaluations=5, wall_time_s=60)
    any_of = Limit("evaluations", 5) | Limit("wall_time", 60) | Limit("tokens", 7)
    all_of = Limit("evaluations", 5) & Limit("wall_time", 60)
    assert any_of.check(many) == "5 of 5 evaluations used"
    assert all_of.check(many) is None
    assert all_of.check(long) == "5 of 5 evaluations used and 1m of 1m wall time used"
    assert (Limit("tokens", 7) | all_of).check(long) == all_of.check(long)


def test_usage_tells_which_limit_comes_first():
    rule = from_config({"evaluations": 400, "wall_time": "1h", "usd": None})
    usage = rule.usage(Progress(evaluations=100, wall_time_s=1800))
    assert usage == {"evaluations": 0.25, "wall_time": 0.5, "stop": 0.0}
    assert rule.used(Progress(evaluations=100, wall_time_s=1800)) == 0.5
    assert (Limit("evaluations", 4) & Limit("tokens", 2)).used(
        Progress(evaluations=4, tokens=1)
    ) == 0.5


def test_limits_that_end_a_run_only_together_are_configured_under_all_of():
    both = {"evaluations": 5, "target_speedup": 1.5, "usd": None}
    rule = from_config({"evaluations": 40, "all_of": both})
    assert rule.check(Progress(evaluations=5)) is None
    assert rule.check(Progress(best=BEST)) is None
    reached = "5 of 5 evaluations used and speedup 1.9 or more reached, target 1.5"
    assert rule.check(Progress(evaluations=5, best=BEST)) == reached
    assert rule.check(Progress(evaluations=40)) == "40 of 40 evaluations used"
    assert rule.usage(Progress(evaluations=4))["all_of"] == 0.0
    assert from_config({"all_of": {"evaluations": 5}}).check(Progress(evaluations=5))


PROGRESS = st.builds(
    Progress,
    proposals=st.integers(0, 20),
    evaluations=st.integers(0, 20),
    wall_time_s=st.floats(0, 20),
    device_time_s=st.floats(0, 20),
    tokens=st.integers(0, 20),
    usd=st.none() | st.floats(0, 20),
    best=st.none() | st.floats(0.1, 20).map(lambda value: Ratio(value, value, value)),
    speed_of_light=st.none() | st.floats(0, 2),
    stop_requested=st.sampled_from(["", "STOP file found"]),
)
LIMITS = st.fixed_dictionaries(
    {"evaluations": st.integers(1, 20)},
    optional={
        "proposals": st.integers(1, 20),
        "wall_time": st.floats(0.1, 20),
        "device_time": st.floats(0.1, 20),
        "tokens": st.integers(1, 20),
        "usd": st.floats(0.1, 20),
        "stagnation": st.integers(1, 20),
        "target_speedup": st.floats(0.1, 20),
        "speed_of_light": st.floats(0.1, 1),
    },
)


@given(LIMITS, PROGRESS)
def test_a_reason_is_given_exactly_when_a_limit_is_used_up(limits, progress):
    rule = from_config(limits)
    assert (rule.check(progress) is not None) == (max(rule.usage(progress).values()) >= 1)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2h30m", 9000),
        ("90s", 90),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
        ("1.5h", 5400),
        ("1d 1s", 86401),
    ],
)
def test_durations_are_read(written, seconds):
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "abc", "2h30", "30m2h", "-1s", "0s", 0, -1, True, float("nan"), float("inf"), "1 week"],
)
def test_what_is_no_duration_is_refused(written):
    with pytest.raises(UsageError, match="not a duration above zero; write"):
        parse_duration(written)


@given(st.integers(1, 10**7))
def test_a_written_duration_reads_back(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "no limit is set, and a run needs an end"),
        ({"evaluations": None}, "no limit is set"),
        ({"evals": 4}, r"termination\.evals is unknown; it has evaluations"),
        ({"evaluations": 0}, r"termination\.evaluations must be a whole number above zero"),
        ({"evaluations": "many"}, r"termination\.evaluations"),
        ({"evaluations": 2.5}, r"termination\.evaluations"),
        ({"usd": -1}, r"termination\.usd must be a number above zero"),
        ({"target_speedup": True}, r"termination\.target_speedup"),
        ({"wall_time": "soon"}, r"termination\.wall_time: 'soon' is not a duration"),
        ({"device_time": []}, r"termination\.device_time"),
        ({"all_of": {}}, "no limit is set"),
        ({"all_of": 3}, r"termination\.all_of must hold limits, got 3"),
        ({"all_of": {"evals": 4}}, r"termination\.all_of: .*evals is unknown"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(config, said):
    with pytest.raises(UsageError, match=said):
        from_config(config)


def test_what_is_kept_back_counts_as_used_and_is_said():
    rule = from_config({"wall_time": "1m", "device_time": "10s"})
    assert rule.check(Progress(wall_time_s=30, wall_time_reserved_s=29)) is None
    assert rule.check(Progress(wall_time_s=30, wall_time_reserved_s=30)) == (
        "30s of 1m wall time used, too little is left for another evaluation and a verification "
        "(30s)"
    )
    assert rule.check(Progress(device_time_s=6, device_time_reserved_s=5)).startswith("6s of 10s")
    assert (
        rule.check(Progress(wall_time_s=61, wall_time_reserved_s=30)) == "1m1s of 1m wall time used"
    )


def test_the_wall_time_left_is_that_of_the_limit_that_ends_the_run():
    spent = Progress(wall_time_s=30)
    assert from_config({"wall_time": "1m", "evaluations": 9}).wall_time_left_s(spent) == 30
    assert from_config({"evaluations": 9}).wall_time_left_s(spent) == float("inf")
    together = {"wall_time": "1m", "evaluations": 9}
    assert from_config({"all_of": together}).wall_time_left_s(spent) == float("inf")
    both = {"wall_time": "2m", "all_of": {"wall_time": "1m"}}
    assert from_config(both).wall_time_left_s(spent) == 30
