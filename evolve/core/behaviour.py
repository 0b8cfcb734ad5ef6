"""What a program is like: the descriptors by which archives tell programs apart."""

import math

from evolve.core.evaluation import Evaluation
from evolve.core.sketch import sketch

CASE = "case_"
"""What the descriptor of a case is called, before the name of the case."""


def behaviour(evaluation: Evaluation, source: str, baseline: str) -> dict[str, float | str]:
    """Descriptors of a correct program by name.

    The judge's own, and of this evaluation `compile_s` (seconds, little where the build was kept),
    the log speedup against `baseline` in every timed case (`case_NAME`) and in the slowest of them
    (`worst_case`), and of the text its `sketch` (`evolve.core.sketch`). What is not known is left
    out.
    """
    found: dict[str, float | str] = dict(evaluation.descriptors)
    if "compile" in evaluation.durations_s:
        found["compile_s"] = evaluation.durations_s["compile"]
    cases = {
        case.name: math.log(case.ratios[baseline].value)
        for case in evaluation.cases
        if baseline in case.ratios
    }
    found |= {CASE + name: value for name, value in cases.items()}
    if cases:
        found["worst_case"] = min(cases.values())
    return found | {"sketch": sketch(source)}
