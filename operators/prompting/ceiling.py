"""The baseline's time, the device's limit, and how far the best program is from it.

The judge says it of each judged program: times by case, the share of the speed of light, and the
line of `evolve.worker.base.feedback.bound` below each case.
"""

import re
from dataclasses import dataclass

from evolve.core.evaluation import CaseResult, Evaluation
from evolve.core.protocols import Context
from evolve.core.task import case_text

_MIN_SHARE = 10  # percent: a smaller one is rounded too coarsely to divide by
_CASE = re.compile(r"^case (.{1,200}?): [^\n]*\n\s*(?:memory-bound|compute-bound|neither)[^\n]*",
                   re.MULTILINE)  # fmt: skip
_MEMORY = re.compile(r"(\d+)% of this device's memory rate \(([\d.e+]+) GB/s\)")
_ARITHMETIC = re.compile(r"(\d+)% of its arithmetic \(([\d.e+]+) TFLOP/s\)")
_TRAFFIC = re.compile(
    r"^all launches together: operands of [^\n]{1,40}, each once, at ([\d.]+) GB/s, (\d+)% of this "
    r"device's memory rate$",
    re.MULTILINE,
)
# Dense rates in NVIDIA's data sheets from Ampere on (A100, L40S, H100, H200): float16 as bfloat16,
# TF32 half of it. Of what is added up, the number of products is known.
_LIKE_IT = {
    "bf16x3": "`fp16x3` as fast as `bf16x3`, `tf32x3` and `bf16x6` half as fast",
    "tf32x3": "`bf16x6` as fast as `tf32x3`, `fp16x3` and `bf16x3` twice as fast",
}
WELL_USED = 0.6  # of the memory rate: below it, traffic is not the limit; as the judge has it


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device, as they were measured: bytes copied and operations of products per second.

    None is unknown; `kind` is the arithmetic that the second is of.
    """

    bytes_per_s: float | None = None
    flops_per_s: float | None = None
    kind: str = ""

    def facts(self) -> list[tuple[str, str]]:
        """In the words of a prompt."""
        found = []
        if self.bytes_per_s:
            found.append(("measured copy rate", f"{self.bytes_per_s / 1e9:.2g} GB/s"))
        if self.flops_per_s:
            name = f"measured rate of products{f' ({self.kind})' if self.kind else ''}"
            found.append((name, f"{self.flops_per_s / 1e12:.2g} TFLOP/s"))
        told = [(name, _plain(value)) for name, value in found]
        if self.flops_per_s and self.kind in _LIKE_IT:
            told.append(("other split products, by the data sheet's rates", _LIKE_IT[self.kind]))
        return told


def _plain(value: str) -> str:
    """Without an exponent.

    >>> _plain("2.8e+03 GB/s")
    '2800 GB/s'
    """
    number, unit = value.split()
    return f"{float(number):g} {unit}"


def traffic_share(evaluation: Evaluation) -> float | None:
    """How near a program's own traffic is to the device's memory rate, intermediates included.

    By the operands of its launches, each once; None where the judge does not say it.
    """
    found = _TRAFFIC.search(evaluation.feedback)
    return int(found[2]) / 100 if found else None


def arithmetic_share(evaluation: Evaluation) -> float:
    """How near the first case that the judge tells of is to the device's rate of products."""
    found = _ARITHMETIC.search(evaluation.feedback)
    return int(found[1]) / 100 if found else 0.0


def judged_best(context: Context) -> Evaluation | None:
    """The evaluation of the best program of the run, else of its newest correct one."""
    if context.elites:
        return context.facts.evaluation(context.elites[0].program)
    for attempt in context.facts.recent(1, failed=False):
        if attempt.program is not None:
            return context.facts.evaluation(attempt.program)
    return None


def rates_of(evaluation: Evaluation | None) -> Rates:
    """The rates that a verdict was given by."""
    if evaluation is None:
        return Rates()
    bounds = {case.bound for case in evaluation.cases if case.bound.endswith("arithmetic")}
    kind = bounds.pop().removesuffix(" arithmetic") if len(bounds) == 1 else ""
    return Rates(
        _ceiling(_MEMORY, evaluation.feedback, 1e9) or _copy_rate(evaluation.feedback),
        _ceiling(_ARITHMETIC, evaluation.feedback, 1e12),
        kind,
    )


def _ceiling(pattern: re.Pattern[str], text: str, unit: float) -> float | None:
    """The rate that a share is of; by the largest share, which is rounded least."""
    found = [(int(share), float(rate)) for share, rate in pattern.findall(text)]
    share, rate = max(found, default=(0, 0.0))
    return unit * rate * 100 / share if share >= _MIN_SHARE else None


def _copy_rate(text: str) -> float | None:
    found = _TRAFFIC.search(text)
    return 1e9 * float(found[1]) * 100 / int(found[2]) if found and int(found[2]) else None


def ceilings(
    evaluation: Evaluation | None, baseline: str, name: str, *, tells_best: bool = True
) -> list[str]:
    """Two lines for each timed case: the times and the program's share, and both limits.

    Args:
        evaluation: of the best program.
        baseline: the key of the baseline.
        name: how prompts call it.
        tells_best: whether the program's own time is told.
    """
    if evaluation is None:
        return []
    work = {found[1]: found[0] for found in _CASE.finditer(evaluation.feedback)}
    rates = rates_of(evaluation)
    found = []
    for case in evaluation.cases:
        if case.timed and "candidate" in case.times_ms and baseline in case.times_ms:
            found.append(_times(case, baseline, name, tells_best))
            found += _limits(case, work.get(case.name, ""), rates)
    return found


def _times(case: CaseResult, baseline: str, name: str, tells_best: bool) -> str:
    own, share = case.times_ms["candidate"].value, case.speed_of_light
    said = f"{case_text(case.name)}: {name} {case.times_ms[baseline].value:.3g} ms"
    if tells_best:
        said += f", the best program {own:.3g} ms"
        said += f" ({100 * share:.0f} % of the ceiling's rate)" if share else ""
    return said


def _limits(case: CaseResult, judged: str, rates: Rates) -> list[str]:
    """The limits by memory and arithmetic, and which of them binds; empty if neither is known."""
    own, share = case.times_ms["candidate"].value, case.speed_of_light
    least, is_memory = f"{share * own:.3g} ms" if share else "", case.bound == "memory"
    found = []
    if memory := _limit(_MEMORY, judged, own, 1e9, rates.bytes_per_s):
        at = least if is_memory and least else memory[1]
        found.append(f"memory {memory[0] / 1e6:.3g} MB, {at} at the copy rate")
    if arithmetic := _limit(_ARITHMETIC, judged, own, 1e12, rates.flops_per_s):
        at = least if not is_memory and least else arithmetic[1]
        how = f" in {case.bound.removesuffix(' arithmetic')}" if not is_memory else ""
        found.append(f"arithmetic {arithmetic[0] / 1e9:.3g} GFLOP, {at}{how}")
    if least:
        found.append(f"{'memory' if is_memory else 'arithmetic'} sets the ceiling, {least}")
    return [f"limits of {case_text(case.name)}: {'; '.join(found)}"] if found else []


def _limit(
    pattern: re.Pattern[str], text: str, time_ms: float, unit: float, rate: float | None
) -> tuple[float, str] | None:
    """How many bytes or operations there are, and how long they take; None where it is unknown."""
    found = pattern.search(text)
    if found is None:
        return None
    amount = float(found[2]) * unit * time_ms / 1e3
    if rate:
        return amount, f"{1e3 * amount / rate:.3g} ms"
    return amount, f"about {int(found[1]) * time_ms / 100:.1g} ms"
