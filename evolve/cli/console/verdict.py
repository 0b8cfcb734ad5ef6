"""A verdict as the terminal shows it."""

from collections.abc import Iterator, Sequence

from evolve.app.text import interval_text, speedup_text, table
from evolve.core.evaluation import CaseResult, Evaluation, Stage, Status
from evolve.report.audit import NOT_COUNTED, Findings, weak_task_text
from evolve.report.text import baseline_name, printable


def verdict_text(
    evaluation: Evaluation, findings: Findings = (), conditions: Sequence[str] = ()
) -> Iterator[str]:
    """Status, speedups, the table of cases, labels with their evidence, and the feedback.

    Args:
        evaluation: the verdict.
        findings: of the task's audit.
        conditions: sentences about effects and modes that were judged.
    """
    yield f"verdict    {_status(evaluation)}"
    yield f"strict     {NOT_COUNTED if findings else 'passed' if evaluation.strict else 'failed'}"
    if evaluation.suite is not None:
        yield f"suite      {'passed' if evaluation.suite else 'failed'} the suite's own rule"
    if findings:
        yield f"audit      {weak_task_text(findings)}"
    for condition in conditions:
        yield f"judged     {condition}"
    for baseline, ratio in evaluation.ratios.items():
        yield f"speedup    {speedup_text(ratio)} over {baseline_name(baseline)}"
    yield from _exactness(evaluation)
    if evaluation.cases:
        yield ""
        yield _cases(evaluation)
        yield ""
    for label in evaluation.labels:
        yield f"label      {label.name}: {printable(label.evidence)}"
    if evaluation.feedback:
        yield printable(evaluation.feedback)


def _exactness(evaluation: Evaluation) -> Iterator[str]:
    """How far off a correct program was at worst, and the memory that it takes for itself."""
    error, memory = (evaluation.descriptors.get(name) for name in ("error", "memory_bytes"))
    if isinstance(error, float):
        yield f"error      at most {error:.2g} of the tolerance for well-conditioned outputs"
    if isinstance(memory, float):
        yield f"memory     {memory / 1e6:.1f} MB beyond weights, inputs and outputs"


def _status(evaluation: Evaluation) -> str:
    if evaluation.status is not Status.CORRECT:
        passed = evaluation.stage.name.lower()
        return f"{evaluation.status.replace('_', ' ')} (last stage passed: {passed})"
    if evaluation.custom is None:
        return "correct, and not established whether its own kernels did the work"
    if not evaluation.custom:
        return "correct, but the outcome is not made by a kernel of its own: no score"
    return "correct, by kernels of its own"


def _cases(evaluation: Evaluation) -> str:
    cases, checks = evaluation.cases, _checks(evaluation)
    sides = list(dict.fromkeys(side for case in cases for side in case.times_ms))
    against = list(dict.fromkeys(side for case in cases for side in case.ratios))
    header = ["CASE", "CHECK", *(baseline_name(s).upper() for s in sides)]
    header += [f"SPEEDUP OVER {baseline_name(side).upper()}" for side in against]
    rows = []
    for case, check in zip(cases, checks, strict=True):
        row = [case.name, check]
        row += [interval_text(case.times_ms[s]) if s in case.times_ms else "-" for s in sides]
        row += [_with_warning(case, side) for side in against]
        rows.append(row)
    return table(header, rows)


def _checks(evaluation: Evaluation) -> list[str]:
    """The result of each case: they are checked in order, and the first failure ends the check."""
    cases, told = evaluation.cases, evaluation.feedback
    if evaluation.status is Status.CORRECT or evaluation.stage >= Stage.CORRECTNESS:
        before, after = "passed", "passed"
    else:
        before = "passed" if evaluation.stage is Stage.SMOKE else "not run"
        after = "not run"
    named = [told.startswith((f"case {case.name},", f"case {case.name}:")) for case in cases]
    if evaluation.status is Status.CORRECT or True not in named:
        in_doubt = Stage.COMPILE <= evaluation.stage < Stage.CORRECTNESS
        return ["-" if in_doubt else after] * len(cases)
    failed = named.index(True)
    return [before] * failed + ["failed"] + [after] * (len(cases) - failed - 1)


def _with_warning(case: CaseResult, side: str) -> str:
    if side not in case.ratios:
        return "-"
    ratio = case.ratios[side]
    return speedup_text(ratio) + (" slower" if ratio.high < 1 else "")
