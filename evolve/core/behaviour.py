"""Descriptors of programs, by which archives tell them apart."""

import math

from evolve.core.devices import device_kind
from evolve.core.evaluation import Evaluation

CASE = "case_"
"""Prefix of the descriptor of a case, before the name of the case."""

_EVERYWHERE = frozenset(
    (
        *("language", "memory_access", "parallelism", "compute_pattern", "precision_path"),
        *("kernels", "speed_of_light", "compile_s", "worst_case", "log_speedup", "length", "error"),
    )
)


def known_descriptors(kind: str) -> frozenset[str]:
    """Names that programs may be told apart by on a kind of device; those of cases come on top."""
    return _EVERYWHERE | device_kind(kind).descriptors


def behaviour(evaluation: Evaluation, baseline: str) -> dict[str, float | str]:
    """Descriptors of a correct program by name.

    The judge's own; of these, `error` is the largest error of its outcomes over the tolerance (at
    most 1), `longest_sum` the terms of the reference's longest sum, and `memory_bytes` the most
    that a call takes beyond weights, inputs and outputs. Of this evaluation `compile_s` (seconds,
    little if the build was kept), the log speedup against `baseline` in every timed case
    (`case_NAME`) and in the slowest of them (`worst_case`) and over all (`log_speedup`). Unknown
    ones are left out. Descriptors of texts cost more, and are only there for archives that read it
    (`evolve.core.protocols.Archive`).
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
    if fitness := evaluation.fitness(baseline):
        found["log_speedup"] = fitness.value
    return found
