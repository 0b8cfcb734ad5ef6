"""What the baseline takes, what the device can do, and how far the best program is from it.

The judge says it of each judged program: times by case, the share of the speed of light, and the
line of `evolve.worker.base.feedback.bound` below each case.
"""

import re
from collections.abc import Iterator
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
        return [(name, _plain(value)) for name, value in found]


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
    """A line for each timed case: the baseline's time, the ceiling, and the program's share of it.

    Args:
        evaluation: of the best program.
        baseline: the key of the baseline.
        name: how prompts call it.
        tells_best: whether the program's own time is told.
    """
    if evaluation is None:
        return []
    work = {found[1]: found[0] for found in _CASE.finditer(evaluation.feedback)}
    return [
        ", ".join(_parts(case, baseline, name, work.get(case.name, ""), tells_best))
        for case in evaluation.cases
        if case.timed and "candidate" in case.times_ms and baseline in case.times_ms
    ]


def _parts(
    case: CaseResult, baseline: str, name: str, judged: str, tells_best: bool
) -> Iterator[str]:
    own = case.times_ms["candidate"].value
    yield f"{case_text(case.name)}: {name} {case.times_ms[baseline].value:.3g} ms"
    moved, done = _amount(_MEMORY, judged, own, 1e9), _amount(_ARITHMETIC, judged, own, 1e12)
    needs = [f"{moved / 1e6:.3g} MB to read and write" if moved else ""]
    needs += [f"{done / 1e9:.3g} GFLOP" if done else ""]
    if any(needs):
        yield " and ".join(filter(None, needs))
    if case.speed_of_light:
        yield f"at this device's rates {case.speed_of_light * own:.3g} ms ({case.bound})"
    if tells_best:
        share = case.speed_of_light
        of_rate = f", {100 * share:.0f} % of that rate" if share else ""
        yield f"the best program {own:.3g} ms{of_rate}"


def _amount(pattern: re.Pattern[str], text: str, time_ms: float, unit: float) -> float | None:
    found = pattern.search(text)
    return float(found[2]) * unit * time_ms / 1e3 if found else None
