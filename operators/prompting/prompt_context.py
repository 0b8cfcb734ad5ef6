"""The state of a run in the words of a prompt."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from evolve.core.evaluation import CaseResult, Evaluation, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Assignment
from evolve.core.protocols import Attempt, Context, Elite
from evolve.core.recalled import Recalled
from evolve.core.source.tunables import render
from evolve.core.task import case_text
from evolve.languages.registry import detect_language
from operators.prompting.ceiling import WELL_USED, traffic_share
from operators.quoting import Quoted, one_line, quote, shortened

MAX_FEEDBACK_CHARS = 3000
MAX_REMARK_CHARS = 500  # of another attempt's feedback

_UNTOLD = frozenset(  # told in other words, or of no use without an explanation
    {"descriptor_version", "precision_path", "error", "speed_of_light", "longest_sum", "language",
     "coverage", "matrix_share", "global_share", "shared_share"}
)  # fmt: skip
_BYTES = {  # descriptors that are an amount of memory: the words for it, the unit and its bytes
    "memory_bytes": (
        "peak memory that a call allocates beyond weights, inputs and outputs (not memory traffic)",
        "MB", 1e6),
    "shared_bytes": ("shared memory of a block", "KiB", 1024),
    "spill_bytes": ("local memory of a thread (spilled registers, arrays)", "bytes", 1),
}  # fmt: skip
_REPEATED = re.compile(r"^case [^\n]*(?:\n|$)", re.MULTILINE)  # says what our own lines say
_IDEAL = re.compile(r"; at that ceiling a call would take [^\n;]*")  # stands under "Baseline"
_NEITHER = re.compile(r"\bneither memory- nor compute-bound \([^)\n]*\)")

_BASELINES = {"eager": "PyTorch eager", "compile": "torch.compile"}


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A program of the run as a prompt shows it.

    Attributes:
        name: how prompts call it.
        source: its text with its best known tunable values set.
        verdict: status, speedup and cases in our words.
        remarks: the judge's feedback and labels, quoted; empty where there are none.
        speedup: against the baseline; None where it has none.
        evaluation: the whole of it, where the run has it.
    """

    name: str
    source: str
    verdict: Quoted
    remarks: Quoted
    speedup: Ratio | None
    evaluation: Evaluation | None

    @property
    def shown(self) -> Quoted:
        """The source as it may stand in a prompt."""
        return quote(self.source, "program")

    @property
    def language(self) -> str:
        return detect_language(self.source).name


def exhibit(context: Context, program: str, assignment: Assignment) -> Exhibit:
    """A stored program with its evaluation."""
    evaluation = context.facts.evaluation(program)
    found = None if evaluation is None else evaluation.ratios.get(context.baseline)
    return Exhibit(
        name=f"program {program[:8]}",
        source=render(context.facts.source(program), assignment),
        verdict=Quoted("\n".join(_verdict(evaluation, context.baseline))),
        remarks=_remarks(evaluation),
        speedup=found,
        evaluation=evaluation,
    )


def judged_text(evaluation: Evaluation, baseline: str) -> Quoted:
    """A judged program in every prompt: its verdict, and the judge's remarks, quoted."""
    verdict, remarks = "\n".join(_verdict(evaluation, baseline)), _remarks(evaluation)
    return Quoted(f"{verdict}\n\n{remarks}" if remarks else verdict)


def speedup_of(elite: Elite) -> Ratio:
    """The speedup that an elite's fitness stands for."""
    fitness = elite.fitness
    return Ratio(math.exp(fitness.value), math.exp(fitness.low), math.exp(fitness.high))


def baseline_name(name: str) -> str:
    """A baseline as prose calls it."""
    return _BASELINES.get(name, name.removeprefix("file:"))


def ratio_text(ratio: Ratio, baseline: str) -> str:
    """A speedup with its interval.

    >>> ratio_text(Ratio(2.0, 1.9, 2.1), "eager")
    '2.00x as fast as PyTorch eager (95 % interval 1.90 to 2.10)'
    """
    spread = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.value:.2f}x as fast as {baseline_name(baseline)} ({spread})"


def time_text(time_ms: Interval) -> str:
    """A time with half its interval.

    >>> time_text(Interval(0.5, 0.49, 0.51))
    '0.5 ms ± 2.0 %'
    """
    return f"{time_ms.value:.4g} ms ± {100 * time_ms.half_width:.1f} %"


def _verdict(evaluation: Evaluation | None, baseline: str) -> Iterator[str]:
    if evaluation is None:
        yield "Not evaluated yet."
        return
    ratio = evaluation.ratios.get(baseline)
    if evaluation.status is not Status.CORRECT:
        yield f"Verdict: {evaluation.status}."
    elif evaluation.custom is False:
        yield "Verdict: correct, but its outcome is not made by kernels of its own; does not count."
    else:
        yield f"Verdict: correct{f', {ratio_text(ratio, baseline)}' if ratio else ', not timed'}."
    for case in evaluation.cases:
        yield _case(case, baseline)
    error = evaluation.descriptors.get("error")
    if isinstance(error, float):
        yield f"Largest error: {100 * error:.0f} % of what is allowed."
    if facts := dict(_descriptors(evaluation)):
        yield f"Descriptors: {', '.join(f'{name} {value}' for name, value in facts.items())}."


def _descriptors(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    for name, value in sorted(evaluation.descriptors.items()):
        if name in _BYTES and isinstance(value, float):
            words, unit, unit_bytes = _BYTES[name]
            yield words, f"{value / unit_bytes:.4g} {unit}"
        elif name not in _UNTOLD:
            yield name, f"{value:.7g}" if isinstance(value, float) else value


def _case(case: CaseResult, baseline: str) -> str:
    """One line of a case; one that is slower than the baseline is said to be."""
    said = f"- {case_text(case.name)}: "
    if not case.passed:
        return said + "failed or not run"
    if not case.timed or "candidate" not in case.times_ms:
        return said + "passed, not timed"
    said += time_text(case.times_ms["candidate"])
    if baseline in case.times_ms:
        said += f", {baseline_name(baseline)} {time_text(case.times_ms[baseline])}"
    ratio = case.ratios.get(baseline)
    return said + (" (SLOWER than the baseline)" if ratio and ratio.high < 1 else "")


def _remarks(evaluation: Evaluation | None) -> Quoted:
    if evaluation is None:
        return Quoted("")
    has_rows = "\nkernel '" in f"\n{evaluation.feedback}"  # which tell launches apart by role
    told = [each for each in evaluation.labels if not (has_rows and each.name == "kernels")]
    lines = [f"{label.name}: {label.evidence}" for label in told]
    if evaluation.feedback:
        text = _told_once(evaluation.status, evaluation.feedback, traffic_share(evaluation))
        lines.append(shortened(text, MAX_FEEDBACK_CHARS))
    return quote("\n".join(lines), "judge's remarks") if lines else Quoted("")


def _told_once(status: Status | None, feedback: str, traffic: float | None = None) -> str:
    """Feedback on a correct program without the lines that repeat its times.

    The judge's bound counts inputs and outputs once: what neither explains may be traffic of the
    program's own, of which `traffic` is the share of the device's memory rate.
    """
    if status is not Status.CORRECT:
        return feedback
    said = "limited neither by arithmetic nor by inputs and outputs (no intermediates counted)"
    if traffic is not None and traffic >= WELL_USED:
        said = f"memory-bound by what its launches move ({traffic:.0%} of the memory rate)"
    elif traffic is not None:
        said = f"limited neither by arithmetic nor by memory, with intermediates ({traffic:.0%} of "
        said += "the memory rate), so by latency, launches, or too little parallel work"
    return _NEITHER.sub(said, _IDEAL.sub("", _REPEATED.sub("", feedback))).strip("\n")


def attempt_text(attempt: Attempt, baseline: str, parent: Ratio | None = None) -> Quoted:
    """The outcome of a step, in a line of ours and the quoted words of others.

    Args:
        attempt: the step.
        baseline: that its ratio is against.
        parent: the speedup of the program that it was made from, to compare with.
    """
    said = f"- step {attempt.sequence}, {attempt.operator}: {_outcome(attempt, baseline)}"
    if parent is not None and attempt.ratio is not None:
        said += f" {_change(attempt.ratio, parent)}"
    feedback = _told_once(attempt.status, attempt.feedback)
    remark = attempt.failure or shortened(feedback, MAX_REMARK_CHARS)
    words = "\n".join(part for part in (shortened(attempt.note, MAX_REMARK_CHARS), remark) if part)
    return Quoted(f"{said}\n{quote(words, 'note and remarks')}" if words else said)


def recalled_line(found: Recalled) -> str:
    """The first line of a finding, in our words."""
    return f"- {found.kind}: {one_line(found.about, MAX_REMARK_CHARS)}"


def recalled_text(found: Recalled) -> Quoted:
    """A finding of earlier runs: where it was measured in our words, and the words of others."""
    said = recalled_line(found)
    return Quoted(f"{said}\n{quote(found.words, 'message or note')}" if found.words else said)


def _outcome(attempt: Attempt, baseline: str) -> str:
    if attempt.program is None:
        return "no program came of it."
    if attempt.status is None:
        return "not judged yet."
    if attempt.status is not Status.CORRECT:
        return f"{attempt.status}."
    if attempt.custom is False:
        return "correct, but not made by kernels of its own."
    return f"correct, {ratio_text(attempt.ratio, baseline)}." if attempt.ratio else "correct."


def _change(child: Ratio, parent: Ratio) -> str:
    """How a child compares with its parent: indirectly, each was measured against the baseline."""
    gain = child / parent
    if gain.low > 1:
        return f"Faster than the program it came from, {gain.value:.2f}x."
    if gain.high < 1:
        return f"Slower than the program it came from, {gain.value:.2f}x."
    return "As fast as the program it came from, within the error."
