"""Rewards of single steps, against values worked by hand:

1. Each has the value of its paper's formula; the arithmetic stands beside it.
2. A gain whose interval holds 1.0 is worth exactly 1.0.
3. A missing input gives None; a failure of the candidate never does; our own fault always does.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Stage, Status
from evolve.core.measurement import Ratio
from evolve.core.model import ReplyStatus
from evolve.trajectories.rewards import Grade, grade, pipeline, reward, reward_names, worth
from evolve.trajectories.rewards.turns import towards_one
from evolve.trajectories.step import Known, Made, Step
from tests.trajectories.searched import TASK, ratio, verdict

PARENT = Known(program="a" * 64, evaluation=verdict(1.6))


def step(judged: Evaluation | None, parent: Known | None = PARENT, **fields) -> Step:
    return Step(task=TASK, evaluation=judged, parent=parent, **fields)


def score(name: str, *args, **fields) -> float | None:
    return reward(name).score(step(*args, **fields))


BROKEN = verdict(status=Status.COMPILE_ERROR, stage=Stage.INTERFACE)
WRONG = verdict(status=Status.WRONG_VALUE)
HACK = verdict(status=Status.HACK)
DECOY = verdict(9.0, custom=False)
UNSURE = verdict(2.0, custom=None)
UNTIMED = verdict(status=Status.TIMING_UNBOUNDED)
OURS = verdict(status=Status.INFRA)


def test_kernel_smith_is_the_time_of_the_parent_over_that_of_the_child() -> None:
    # 6 ms / 1.6 = 3.75 ms before, 6 ms / 2.4 = 2.5 ms after; 3.75 / 2.5 = 1.5
    assert score("kernel_smith@1", verdict(2.4)) == pytest.approx(1.5)
    # slower counts as it is: 2.4 ms-equivalent 0.8 / 1.6 = 0.5
    assert score("kernel_smith@1", verdict(0.8)) == pytest.approx(0.5)


def test_a_parent_that_was_timed_beside_its_child_needs_no_verdict_of_its_own() -> None:
    beside = replace(verdict(2.4), ratios={"eager": ratio(2.4), "parent": ratio(1.25)})
    unjudged = Known(program="b" * 64)
    assert score("kernel_smith@1", beside, unjudged) == pytest.approx(1.25)
    assert score("mtmc@1", beside, unjudged) == pytest.approx(1.6)
    as_fast = replace(beside, ratios={"eager": ratio(2.4), "parent": Ratio(1.1, 0.9, 1.3)})
    assert score("kernel_smith@1", as_fast, unjudged) == 1.0


def test_kernel_smith_without_a_timed_parent_is_unknown() -> None:
    assert score("kernel_smith@1", verdict(2.4), None) is None
    assert score("kernel_smith@1", verdict(2.4), Known(program="b", evaluation=WRONG)) is None
    assert score("kernel_smith@1", WRONG, None) == 0.0


def test_dr_kernel_adds_correctness_speedup_and_coverage() -> None:
    half = {"coverage": 0.5}
    # 1 + min(2.4, 3) + 0.5 = 3.9
    assert score("dr_kernel@1", verdict(2.4, descriptors=half)) == pytest.approx(3.9)
    # 1 + min(7, 3) + 0.8616 = 4.8616, the paper's example after real fusion
    covered = {"coverage": 0.8616}
    assert score("dr_kernel@1", verdict(7.0, descriptors=covered)) == pytest.approx(4.8616)
    assert score("dr_kernel@1", WRONG) == 0.0


def test_dr_kernel_needs_a_profile() -> None:
    assert score("dr_kernel@1", verdict(2.4)) is None
    assert score("dr_kernel@1", BROKEN) == 0.0  # a failure needs none


def test_kevin_is_a_third_for_correct_plus_the_speedup() -> None:
    assert score("kevin@1", verdict(2.4)) == pytest.approx(0.3 + 2.4)
    assert score("kevin@1", verdict(0.5)) == pytest.approx(0.8)
    assert score("kevin@1", HACK) == 0.0


JIT = "import triton\n\n\n@triton.jit\ndef scale(x): ...\n\n\n"


@pytest.mark.parametrize(
    ("judged", "source", "value"),
    [
        (verdict(0.2), JIT + "scale[(1,)](x)\n", 1.0),
        (verdict(), JIT + "scale[(1,)](x)\n", 1.0),  # needs no time
        (WRONG, JIT + "scale[(1,)](x)\n", 0.0),
        (verdict(9.0), 'load_inline("k", cpp_sources="")\n', 0.0),
        (verdict(9.0), 'load_inline("k", cpp_sources="")\n# @triton.jit\n', 0.0),
        (verdict(9.0), '"""@triton.jit scale[(1,)](x)"""\n', 0.0),
        (verdict(9.0), JIT + "other(x)\n", 0.0),  # defined, and never launched
        (verdict(1.0), "", None),  # its text is not known
    ],
)
def test_autotriton_wants_a_triton_kernel_that_is_launched(judged, source, value) -> None:
    assert score("autotriton@2", judged, source=source) == value


@pytest.mark.parametrize(
    ("judged", "value"),
    [
        (WRONG, -1.0),
        (BROKEN, -1.0),
        (verdict(0.9, compiled=0.8), 1.0),
        (verdict(1.0), 1.0),
        (verdict(Ratio(1.05, 1.04, 1.06)), 1.0),  # 1 / 0.95 = 1.0526: not 5 % of the time
        (verdict(Ratio(1.06, 1.05, 1.07), compiled=0.9), 2.0),
        (verdict(2.0, compiled=Ratio(1.05, 1.04, 1.06)), 2.0),
        (verdict(2.0, compiled=Ratio(1.2, 0.9, 1.5)), 2.0),  # holds 1.0
        (verdict(2.0, compiled=1.2), 3.0),
        (verdict(2.0), None),  # 2 or 3: torch.compile was not measured
    ],
)
def test_milestones_of_cuda_agent(judged: Evaluation, value: float | None) -> None:
    assert score("cuda_agent@1", judged) == value


def test_milestones_are_of_the_verification_and_not_of_the_lucky_first_time() -> None:
    lucky = verdict(2.0, compiled=1.5)
    verified = verdict(2.0, compiled=1.0, fidelity=Fidelity.VERIFY)
    assert score("cuda_agent@1", lucky) == 3.0
    assert score("cuda_agent@1", lucky, later=(verified,)) == 2.0
    # without a verification the mean of the logs: sqrt(1.5 * 0.9) = 1.16, and the interval holds 1
    assert score("cuda_agent@1", lucky, later=(verdict(2.0, compiled=0.9),)) == 2.0


@pytest.mark.parametrize(
    ("judged", "value"),
    [
        (BROKEN, -1.0),
        (WRONG, -0.4),  # + 0.1 builds, - 0.5 runs wrong
        (verdict(1.6), 0.6),  # + 0.1 + 0.5, as fast as its parent
        (verdict(1.2), 0.6),
        (verdict(2.4), 1.6),  # + 0.1 + 0.5 + 1.0
    ],
)
def test_the_ladder_of_mtmc(judged: Evaluation, value: float) -> None:
    assert score("mtmc@1", judged) == pytest.approx(value)


def test_the_first_rung_of_mtmc_is_against_the_baseline() -> None:
    assert score("mtmc@1", verdict(1.2), None) == pytest.approx(1.6)
    assert score("mtmc@1", verdict(0.8), None) == pytest.approx(0.6)


def blocks(*pairs: tuple[list[float], list[float]]) -> dict:
    return {"ms": {"eager": [one for one, _ in pairs], "candidate": [own for _, own in pairs]}}


def test_cuda_l1_is_the_median_of_bucket_means_rounded_towards_one() -> None:
    # buckets: 5/2 = 2.5, 3/2 = 1.5, 9.999/4 = 2.49975; their median is 2.49975
    samples = {"large": blocks(([4.0, 6.0], [2.0, 2.0]), ([3.0], [2.0]), ([9.999], [4.0]))}
    assert score("cuda_l1@2", verdict(2.2, samples=samples)) == 2.49
    assert score("cuda_l1@2", verdict(2.2)) is None  # no samples were kept
    assert score("cuda_l1@2", WRONG) == 0.0


def test_cuda_l1_goes_by_no_outlier_and_sides_may_have_different_numbers_of_blocks() -> None:
    samples = {"large": blocks((8 * [1.0] + [7.0], [0.5, 0.25, 0.75, 5.0]))}
    assert score("cuda_l1@2", verdict(2.2, samples=samples)) == 1.6  # 1 / mean(0.5, 0.75)


def test_cuda_l1_takes_the_buckets_of_the_sides_that_the_baseline_was_timed_with() -> None:
    first = {"ms": {"compile": [[9.0]], "candidate": [[1.0]]}}
    samples = {"large": first | {"separate": [blocks(([3.0], [2.0]))]}}
    assert score("cuda_l1@2", verdict(2.2, samples=samples)) == 1.5


def test_cuda_l1_takes_the_buckets_of_every_evaluation_that_counts() -> None:
    def judged(*means: float, **others) -> Evaluation:
        pairs = [([mean], [1.0]) for mean in means]
        return verdict(2.2, samples={"large": blocks(*pairs)}, **others)

    assert score("cuda_l1@2", judged(3.0, 3.2)) == 3.1
    # the median of 2, 2, 2, 3, 3.2
    assert score("cuda_l1@2", judged(3.0, 3.2), later=(judged(2.0, 2.0, 2.0),)) == 2.0
    verified = judged(1.5, fidelity=Fidelity.VERIFY)
    assert score("cuda_l1@2", judged(3.0, 3.2), later=(verified,)) == 1.5


def test_cuda_l1_weighs_cases_by_a_geometric_mean() -> None:
    # 8 ** (1/4) * 1.5 ** (3/4) = 1.6818 * 1.3554 = 2.2795
    samples = {"small": blocks(([8.0], [1.0])), "large": blocks(([3.0], [2.0]))}
    judged = verdict(2.2, samples=samples)
    small, large = (
        CaseResult(name=name, weight=weight, timed=True, passed=True)
        for name, weight in (("small", 1.0), ("large", 3.0))
    )
    assert score("cuda_l1@2", replace(judged, cases=(small, large))) == 2.27
    missing = replace(judged, cases=(small, large, replace(small, name="other")))
    assert score("cuda_l1@2", missing) is None


@pytest.mark.parametrize(
    ("given", "rounded"), [(1.239, 1.23), (0.941, 0.95), (1.0, 1.0), (1.1, 1.1)]
)
def test_rounding_is_conservative(given: float, rounded: float) -> None:
    assert towards_one(given) == rounded


ALIKE = verdict(Ratio(1.6, 1.4, 1.8))


def test_a_gain_whose_interval_holds_one_is_worth_exactly_one() -> None:
    assert worth(Ratio(1.3, 0.99, 1.7)) == 1.0
    assert worth(Ratio(0.8, 0.6, 1.0)) == 1.0
    assert worth(None) is None
    lucky = verdict(Ratio(1.3, 0.95, 1.7), descriptors={"coverage": 1.0})
    assert score("kevin@1", lucky) == 1.3  # 0.3 + 1.0
    assert score("dr_kernel@1", lucky) == 3.0  # 1 + 1 + 1
    assert score("kernel_smith@1", verdict(Ratio(1.7, 1.5, 1.9))) == 1.0
    assert score("cuda_l1@2", lucky) == 1.0


@given(
    value=st.floats(0.2, 5), low=st.floats(0.5, 1), high=st.floats(1, 2), other=st.floats(0.2, 5)
)
def test_no_reward_tells_apart_what_the_clock_cannot(
    value: float, low: float, high: float, other: float
) -> None:
    def judged(speedup: float) -> Evaluation:
        around = Ratio(speedup, min(low, 0.99) * min(speedup, 1), high * 1.01 * max(speedup, 1))
        return verdict(around, compiled=around, descriptors={"coverage": 0.5})

    for name in ("dr_kernel@1", "kevin@1", "cuda_agent@1"):
        assert score(name, judged(value), None) == score(name, judged(other), None)


@pytest.mark.parametrize("name", reward_names())
def test_our_own_fault_is_never_a_score(name: str) -> None:
    for judged in (OURS, None, UNSURE):
        assert score(name, judged, source=JIT + "scale[(1,)](x)\n") is None


@pytest.mark.parametrize("name", reward_names())
def test_every_way_to_fail_scores_below_every_correct_program(name: str) -> None:
    samples = {"large": blocks(([1.0], [2.0]))}
    slow = verdict(0.5, compiled=0.5, descriptors={"coverage": 0.0}, samples=samples)
    least = score(name, slow, source=JIT + "scale[(1,)](x)\n")
    assert least is not None
    fails = [score(name, judged) for judged in (BROKEN, WRONG, HACK, DECOY)]
    fails.append(score(name, None, made=Made.NOTHING, reading=ReplyStatus.NO_CODE))
    assert all(one is not None and one < least for one in fails)
    assert all(
        score(name, again) == one for again, one in zip((BROKEN, WRONG), fails, strict=False)
    )


@pytest.mark.parametrize("name", sorted({*reward_names()} - {"autotriton@2"}))
def test_a_program_that_could_not_be_timed_has_no_score(name: str) -> None:
    assert score(name, UNTIMED) is None


def test_a_refuted_program_has_failed() -> None:
    found = step(verdict(3.0), later=(WRONG,))
    assert grade(found) is Grade.WRONG
    assert reward("kevin@1").score(found) == 0.0


def test_a_duplicate_and_a_lost_call_are_nobodys_fault() -> None:
    assert grade(step(None, made=Made.NOTHING, reading=ReplyStatus.PROGRAM)) is None
    assert grade(step(None, made=Made.NOTHING)) is None
    assert grade(step(None, made=Made.NOTHING, reading=ReplyStatus.UNCHANGED)) is None
    assert grade(step(None, made=Made.NOTHING, reading=ReplyStatus.EDIT_FAILED)) is Grade.NOTHING


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return f"{path}:reward"


def test_a_users_own_function_is_a_reward(tmp_path: Path) -> None:
    name = own(
        tmp_path,
        "def reward(step):\n    return None if step.ratio is None else step.ratio.value ** 2\n",
    )
    mine = reward(name)
    assert mine.name.startswith("mine.py:reward@")
    assert mine.score(step(verdict(3.0))) == 9.0
    assert mine.score(step(WRONG)) is None


def test_a_users_function_is_pinned_by_its_text(tmp_path: Path) -> None:
    one = reward(own(tmp_path, "def reward(step):\n    return 1\n")).name
    other = reward(own(tmp_path, "def reward(step):\n    return 2\n")).name
    assert one != other


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def reward(step):\n    return 'much'\n", "it gave 'much' for step"),
        ("def reward(step):\n    return float('nan')\n", "give a finite number"),
        ("def reward(step):\n    return 1 / 0\n", "makes it fail: ZeroDivisionError"),
        ("def reward(step):\n    return step.nothing\n", "makes it fail: AttributeError"),
        ("def other(step):\n    return 1\n", "defines no function 'reward'"),
        ("def reward(step:\n", "cannot be imported"),
    ],
)
def test_a_users_function_that_is_none_says_so(tmp_path: Path, text: str, said: str) -> None:
    name = own(tmp_path, text)
    with pytest.raises(UsageError, match=said):
        reward(name).score(step(verdict(3.0)))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dr_kernel", "did you mean dr_kernel@1"),
        ("nonsense@3", "there are kernel_smith@1"),
        ("kevin@1+trlo@1", "no shaping 'trlo@1', did you mean trloo@2"),
        ("missing.py:reward", "missing.py cannot be read"),
    ],
)
def test_a_reward_that_does_not_exist_is_answered_with_those_that_do(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pipeline(name)


def test_every_reward_is_pinned_and_says_where_it_comes_from() -> None:
    for name in reward_names():
        assert name.rpartition("@")[2].isdigit()
        assert "arXiv" in reward(name).source
        assert math.isfinite(reward(name).score(step(WRONG)) or 0.0)
