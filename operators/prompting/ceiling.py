"""The baseline's time, the device's limit, and how far the best program is from it.

The judge says it of each judged program: times by case, the share of the speed of light, and the
line of `evolve.worker.base.feedback.bound` below each case. Before any is judged, the cost of the
reference says it (`evolve.core.reference`), and what takes eager's time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from evolve.core.evaluation import CaseResult, Evaluation
from evolve.core.protocols import Context
from evolve.core.reference import CaseCost, OperationCost, ReferenceCost
from evolve.core.task import ONLY_CASE, case_text

_TOLD = 0.01  # of eager's time: operations below that are not worth a line
_BEST, _LIBRARIES = "the best program", "a program that leaves the main work to libraries"
_REACHED = 1.1  # rates differ by so much from one measurement to another
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
_OTHERS = "other split products, by the data sheet's rates"
_LIKE_IT = {
    "bf16x3": "`fp16x3` as fast as `bf16x3`, `tf32x3` and `bf16x6` half as fast",
    "tf32x3": "`bf16x6` as fast as `tf32x3`, `fp16x3` and `bf16x3` twice as fast",
}
_LIKE_BF16X3 = (_OTHERS, "`fp16x3` as fast as `bf16x3`, `bf16x6` half as fast")
WELL_USED = 0.6  # of the memory rate: below it, traffic is not the limit; as the judge has it


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device, as they were measured: bytes copied and operations of products per second.

    None is unknown; `kind` is the arithmetic that the second is of. `products` are rates by
    arithmetic, if all that the task allows were measured.
    """

    bytes_per_s: float | None = None
    flops_per_s: float | None = None
    kind: str = ""
    products: Mapping[str, float] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """In the words of a prompt."""
        found = []
        if self.bytes_per_s:
            found.append(("measured copy rate", f"{self.bytes_per_s / 1e9:.2g} GB/s"))
        if self.products:
            rates = (f"{name} {flop_rate(rate)}" for name, rate in self.products.items())
            told = [(name, _plain(value)) for name, value in found]
            told.append(("measured rates of products by arithmetic", ", ".join(rates)))
            return told + ([_LIKE_BF16X3] if "bf16x3" in self.products else [])
        if self.flops_per_s:
            name = f"measured rate of products{f' ({self.kind})' if self.kind else ''}"
            found.append((name, f"{self.flops_per_s / 1e12:.2g} TFLOP/s"))
        told = [(name, _plain(value)) for name, value in found]
        if self.flops_per_s and self.kind in _LIKE_IT:
            told.append((_OTHERS, _LIKE_IT[self.kind]))
        return told


def flop_rate(per_s: float) -> str:
    """A rate of arithmetic with its unit.

    >>> flop_rate(4e10), flop_rate(1.2e14)
    ('40 GFLOP/s', '120 TFLOP/s')
    """
    return f"{per_s / 1e9:.3g} GFLOP/s" if per_s < 1e12 else f"{per_s / 1e12:.3g} TFLOP/s"


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


def memory_share(evaluation: Evaluation) -> float:
    """How near the first case's inputs and outputs are to the device's memory rate."""
    found = _MEMORY.search(evaluation.feedback)
    return int(found[1]) / 100 if found else 0.0


def judged_best(context: Context) -> Evaluation | None:
    """The evaluation of the best program of the run, else of its newest correct one."""
    if context.elites:
        return context.facts.evaluation(context.elites[0].program)
    for attempt in context.facts.recent(1, failed=False):
        if attempt.program is not None:
            return context.facts.evaluation(attempt.program)
    return None


def rates_of(evaluation: Evaluation | None, reference: ReferenceCost | None = None) -> Rates:
    """The rates by which the reference was rated, else a verdict was given."""
    if reference is not None and reference.cases:
        return Rates(reference.cases[0].bytes_per_s, products=reference.flops_per_s)
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
    evaluation: Evaluation | None,
    baseline: str,
    name: str,
    reference: ReferenceCost | None = None,
    *,
    tells_best: bool = True,
) -> list[str]:
    """Two lines for each timed case: the times and the program's share, and both limits.

    Args:
        evaluation: of the best program.
        baseline: the key of the baseline.
        name: how prompts call it.
        reference: its cost on the device, if it is known.
        tells_best: whether the program's own time is told.
    """
    costs = {cost.name: cost for cost in reference.cases} if reference else {}
    timed = [] if evaluation is None else [case for case in evaluation.cases if case.timed]
    timed = [case for case in timed if {"candidate", baseline} <= case.times_ms.keys()]
    if evaluation is None or not timed:
        return [line for cost in costs.values() for line in (_estimate(cost), _limits(cost))]
    work = {found[1]: found[0] for found in _CASE.finditer(evaluation.feedback)}
    best = _LIBRARIES if evaluation.custom is False else _BEST
    best = best if tells_best else ""
    rates, found = rates_of(evaluation), []
    for case in timed:
        cost = costs.get(case.name)
        found.append(_times(case, baseline, name, best, cost))
        found += [_limits(cost)] if cost else _judged_limits(case, work.get(case.name, ""), rates)
    return found


def operation_lines(reference: ReferenceCost | None) -> tuple[str, list[str]]:
    """The case that takes eager longest, if there are several, and a line for each operation.

    >>> cost = CaseCost(name="large", time_ms=2.0, moved_bytes=8, flops=0, bytes_per_s=1e9,
    ...     flops_per_s=None, bound="memory", operations=(OperationCost(
    ...     name="relu", shapes=((4, 8),), calls=2, time_ms=1.5, moved_bytes=3_000_000),))
    >>> operation_lines(ReferenceCost(cases=(cost,)))
    ('', ['75 %, 1.5 ms: 2 calls of `relu` of [4, 8], 3 MB (2 GB/s)'])
    """
    if reference is None or not any(cost.operations for cost in reference.cases):
        return "", []
    slowest = max(reference.cases, key=lambda cost: cost.time_ms)
    lines = [_operation(each, slowest.time_ms) for each in slowest.operations]
    if slowest.others_ms >= _TOLD * slowest.time_ms:
        lines.append(f"{100 * slowest.others_ms / slowest.time_ms:.0f} %: other operations")
    named = "" if len(reference.cases) == 1 else case_text(slowest.name)
    return named, [line for line in lines if line]


def _operation(cost: OperationCost, total_ms: float) -> str:
    """Empty if it is next to nothing."""
    if cost.time_ms < _TOLD * total_ms:
        return ""
    shapes = " and ".join(str([*shape]) for shape in cost.shapes)
    said = f"{100 * cost.time_ms / total_ms:.0f} %, {_ms(cost.time_ms)}: "
    said += f"{cost.calls} calls of " if cost.calls > 1 else ""
    said += f"`{cost.name}`{f' of {shapes}' if shapes else ''}, "
    seconds = cost.time_ms / 1e3
    if cost.flops:
        said += f"{cost.flops / 1e9:.3g} GFLOP ({flop_rate(cost.flops / seconds)}), "
    return said + f"{cost.moved_bytes / 1e6:.3g} MB ({cost.moved_bytes / seconds / 1e9:.3g} GB/s)"


def _of(case: str) -> str:
    """The start of a line; the only case of a task needs no name."""
    return "" if case == ONLY_CASE else f"{case_text(case)}: "


def _ms(value: float) -> str:
    """Three digits, none of them in an exponent: `0.527 ms`, `4760 ms`."""
    return f"{value:.3g} ms" if value < 1000 else f"{value:.0f} ms"


def _estimate(cost: CaseCost) -> str:
    return f"{_of(cost.name)}PyTorch eager about {_ms(cost.time_ms)} (no interval yet)"


def _least_ms(cost: CaseCost) -> float:
    return max(cost.memory_ms, cost.arithmetic_ms)


def _limits(cost: CaseCost) -> str:
    """The limits by memory and arithmetic, and which of them binds."""
    is_memory = cost.bound == "memory"
    found = [f"memory {cost.moved_bytes / 1e6:.4g} MB, {_ms(cost.memory_ms)} at the copy rate"]
    if cost.arithmetic_ms:
        how = f" in {cost.bound.removesuffix(' arithmetic')}" if not is_memory else ""
        work = f"{cost.flops / 1e9:.4g} GFLOP, {_ms(cost.arithmetic_ms)}{how}"
        found.append(f"arithmetic {work}")
    least_ms = _least_ms(cost)
    binding = "memory" if is_memory else "arithmetic"
    gain = cost.time_ms / least_ms
    how_far = f"{gain:.3g} times as fast as eager" if gain > _REACHED else "which eager reaches"
    found.append(f"{binding} sets the ceiling, {_ms(least_ms)}, {how_far}")
    return f"{_of(cost.name)}limits: {'; '.join(found)}"


def _times(case: CaseResult, baseline: str, name: str, best: str, cost: CaseCost | None) -> str:
    """The baseline's time, and that of the program that `best` names; empty leaves it out."""
    own, eager = case.times_ms["candidate"].value, case.times_ms.get("eager")
    said = f"{_of(case.name)}{name} {_ms(case.times_ms[baseline].value)}"
    if cost and eager and not 1 / _REACHED < eager.value / cost.time_ms < _REACHED:
        said += f" (eager {_ms(cost.time_ms)} when the limits were measured)"
    if best:
        share = case.speed_of_light
        if cost and eager:  # a device is not always as fast: by ratios, not by times
            share = eager.value / own * _least_ms(cost) / cost.time_ms
        said += f", {best} {_ms(own)}"
        said += f" ({100 * share:.0f} % of the ceiling's rate)" if share else ""
    return said


def _judged_limits(case: CaseResult, judged: str, rates: Rates) -> list[str]:
    """The same by the judge's words on a program; empty if neither is known."""
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
    return [f"{_of(case.name)}limits: {'; '.join(found)}"] if found else []


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
