"""What a program is like, from its verdict.

Invariants:
1. The judge's descriptors are all there; what is not known is left out.
2. Everything can be written as JSON.
"""

import math
from dataclasses import replace

from evolve.core.behaviour import behaviour
from evolve.core.digest import canonical_json
from evolve.core.evaluation import CaseResult
from evolve.core.measurement import Ratio
from evolve.core.protocols import EvaluationRequest
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task


def verdict():
    request = EvaluationRequest(task=synthetic_task(), instance="i", source=SEED_SOURCE)
    return SyntheticEvaluator().judge(request)


def case(name: str, **ratios: float) -> CaseResult:
    found = {side: Ratio(value, value, value) for side, value in ratios.items()}
    return CaseResult(name=name, weight=1, timed=bool(found), passed=True, ratios=found)


def test_the_judges_descriptors_are_kept():
    found = behaviour(verdict(), "eager")
    assert verdict().descriptors.items() <= found.items()
    assert canonical_json(found)


def test_every_timed_case_and_the_worst_of_them_are_there():
    cases = (case("long", eager=2.0), case("odd", eager=0.5), case("checked"))
    found = behaviour(replace(verdict(), cases=cases), "eager")
    assert found["case_long"] == math.log(2)
    assert found["case_odd"] == found["worst_case"] == math.log(0.5)
    assert "case_checked" not in found


def test_what_is_not_known_is_left_out():
    found = behaviour(verdict(), "file:mine.py")
    assert not {name for name in found if name.startswith("case_")}
    assert not {"worst_case", "compile_s"} & found.keys()
    timed = replace(verdict(), durations_s={"compile": 1.5})
    assert behaviour(timed, "eager")["compile_s"] == 1.5
