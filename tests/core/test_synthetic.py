"""The synthetic task: the same verdict for the same text, a planted optimum, planted failures."""

import asyncio
from collections import Counter

from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.protocols import EvaluationRequest, Evaluator
from evolve.core.source.tunables import parse, render
from evolve.testing.synthetic import (
    OPTIMUM,
    PEAK_SPEEDUP,
    SEED_SOURCE,
    SyntheticEvaluator,
    synthetic_task,
    true_speedup,
)


def request(source: str = SEED_SOURCE, **more) -> EvaluationRequest:
    return EvaluationRequest(task=synthetic_task(), instance="digest", source=source, **more)


def instances() -> list[str]:
    space = parse(SEED_SOURCE)
    return [render(SEED_SOURCE, assignment) for assignment in space.assignments()]


def test_the_optimum_is_the_fastest_instance():
    best = max(instances(), key=true_speedup)
    assert best == render(SEED_SOURCE, OPTIMUM)
    assert true_speedup(best) == PEAK_SPEEDUP


def test_the_same_request_gets_the_same_verdict_in_any_evaluator():
    first = asyncio.run(SyntheticEvaluator().evaluate(request()))
    assert first == SyntheticEvaluator().judge(request())
    assert Evaluation.from_json(first.to_json()) == first


def test_noise_is_small_and_grows_with_its_setting():
    def error(noise: float) -> float:
        judge = SyntheticEvaluator(noise=noise)
        ratios = [
            judge.judge(request(s)).ratios["eager"].value / true_speedup(s) for s in instances()
        ]
        return max(abs(ratio - 1) for ratio in ratios)

    assert error(0.0) < 1e-9 < error(0.005) < 0.03 < error(0.1)


def test_failures_are_planted_in_their_shares_and_spare_seeds_and_optimum():
    judge = SyntheticEvaluator(failures={Status.COMPILE_ERROR: 0.3, Status.WRONG_VALUE: 0.3})
    sources = [f"{source}# {n}\n" for n in range(5) for source in instances()]
    found = Counter(judge.judge(request(source)).status for source in sources)
    assert 0.2 < found[Status.COMPILE_ERROR] / len(sources) < 0.4
    assert 0.2 < found[Status.WRONG_VALUE] / len(sources) < 0.4
    assert judge.judge(request()).status is Status.CORRECT
    assert judge.judge(request(render(SEED_SOURCE, OPTIMUM))).status is Status.CORRECT


def test_what_is_no_program_gets_a_status():
    judge = SyntheticEvaluator()
    assert judge.judge(request("x = (")).status is Status.COMPILE_ERROR
    assert judge.judge(request("x = 1")).status is Status.INVALID_INTERFACE


def test_a_higher_fidelity_costs_more_and_says_more():
    judge = SyntheticEvaluator()
    check, *timed = (judge.judge(request(fidelity=fidelity)) for fidelity in Fidelity)
    assert (check.stage, check.ratios) == (Stage.CORRECTNESS, {})
    assert timed[0].stage is Stage.SCREEN
    costs = [evaluation.device_time_s for evaluation in (check, *timed)]
    assert costs == sorted(set(costs))
    widths = [evaluation.ratios["eager"].half_width for evaluation in timed]
    assert widths == sorted(set(widths), reverse=True)


def test_opponents_take_part():
    fast = render(SEED_SOURCE, OPTIMUM)
    ratios = SyntheticEvaluator().judge(request(fast, opponents={"elite": SEED_SOURCE})).ratios
    assert ratios["elite"].value > ratios["eager"].value > 1


def test_calls_and_the_most_under_way_are_counted():
    async def three() -> SyntheticEvaluator:
        judge = SyntheticEvaluator(slots=3, latency_s=0.01)
        await asyncio.gather(*(judge.evaluate(request()) for _ in range(3)))
        await judge.close()
        return judge

    judge: Evaluator = asyncio.run(three())
    assert (judge.calls, judge.peak, judge.closed, judge.slots) == (3, 3, True, 3)
