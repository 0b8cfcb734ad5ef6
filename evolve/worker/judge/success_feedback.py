"""Feedback on a correct candidate: its gains by case, and its bottleneck."""

from collections.abc import Iterator, Sequence

from evolve.core.evaluation import CaseResult, Label
from evolve.worker.base.faults import CANDIDATE, EAGER
from evolve.worker.base.feedback import KernelFacts, compose, kernels
from evolve.worker.correctness.non_finite import DROPS_NAN, OTHER_NON_FINITE
from evolve.worker.timing.results import Timing
from evolve.worker.timing.speed_of_light import Light

_MAX_CASES = 6


def success_feedback(
    timing: Timing,
    light: Light,
    facts: Sequence[KernelFacts],
    custom: bool | None,
    labels: Sequence[Label] = (),
) -> str:
    """Some hundred tokens at most; the most important comes first.

    Args:
        timing: of the timed cases.
        light: how close it is to the device's limits.
        facts: the kernels that a profiler saw.
        custom: whether custom kernels made the outcome.
        labels: of which those about NaN and infinities are told.
    """
    told = [one.evidence for one in labels if one.name in (DROPS_NAN, OTHER_NON_FINITE)]
    return compose([*_parts(timing, light, facts, custom), *told])


def _parts(
    timing: Timing, light: Light, facts: Sequence[KernelFacts], custom: bool | None
) -> Iterator[str]:
    if not custom:
        yield "custom kernels did not make this outcome, so it cannot win: see the labels"
    rows = sorted(timing.cases.values(), key=lambda row: row.ratios[EAGER].value)
    for row in rows[:_MAX_CASES]:
        yield _case(row)
        yield f"  {light.said.get(row.name, '')}"
    if len(rows) > _MAX_CASES:
        yield f"({len(rows) - _MAX_CASES} more cases, all faster than these)"
    yield kernels(facts, bytes_per_s=light.bytes_per_s)


def _case(row: CaseResult) -> str:
    ratio, own, eager = row.ratios[EAGER], row.times_ms[CANDIDATE], row.times_ms[EAGER]
    text = (
        f"case {row.name}: {ratio.value:.3f} times as fast as eager "
        f"[{ratio.low:.3f}, {ratio.high:.3f}], {own.value:.4g} ms "
        f"[{own.low:.4g}, {own.high:.4g}] against {eager.value:.4g} ms"
    )
    if row.speed_of_light is not None:
        text += f"; {row.speed_of_light:.0%} of speed of light ({row.bound})"
    return text
