"""What is wrong with a program, or keeps it from being faster: the key of retrieval."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from evolve.core.evaluation import Evaluation, Status
from evolve.core.protocols import Attempt, Context
from operators.knowledge import Bottleneck, Diagnosis, device_path, operation_of
from operators.prompting.prompt_context import Exhibit

LAUNCH_BOUND_MS = 0.02
"""Below this a GPU kernel's time is mostly that of launching it."""

_HEAD = re.compile(r"^[ \t]*(memory-bound|compute-bound|neither)\b", re.MULTILINE)
"""How lines begin that `feedback.bound` writes; the slowest case's is the first."""

_HABIT = 2  # failures alike; one is an accident

_LIMIT = re.compile(r"^\W*LIMIT\W+(\w+)", re.MULTILINE | re.IGNORECASE)


def diagnose(
    context: Context,
    language: str,
    shown: Sequence[Exhibit],
    attempts: Iterable[Attempt] = (),
) -> Diagnosis:
    """What the facts say without a model.

    Args:
        context: for the task's category and the device.
        language: what the child is to be written in.
        shown: the programs to work on, the one to change first.
        attempts: what was tried from it: the failure that most of them share, and at least two, is
            what the next one is to be kept from.
    """
    evaluation = shown[0].evaluation if shown else None
    return Diagnosis(
        bottleneck=bottleneck(context, evaluation),
        error=_error(evaluation, attempts),
        category=operation_of(context.task.category, context.task.source),
        device=device_of(context),
        language=language,
    )


def reconsidered(found: Diagnosis, words: str) -> Diagnosis:
    """The facts' diagnosis with the limit that a model named, where it named a known one."""
    named = _LIMIT.search(words)
    limit = named[1].lower() if named else ""
    return replace(found, bottleneck=limit) if limit in [*Bottleneck] else found


def device_of(context: Context) -> str:
    """The path of the judging device, as documents are tagged; empty where it is unknown."""
    return device_path(context.device.get("device_class", ""))


def bottleneck(context: Context, evaluation: Evaluation | None) -> str:
    """What the judge's own words say, else what the time does; empty where neither does.

    Where neither memory nor arithmetic explains the time of several kernels, it is memory: what
    they hand to one another is not in the judge's count.

    That too few processors are busy is none of the facts: only a model may say `parallelism`.
    """
    if evaluation is None or evaluation.status is not Status.CORRECT:
        return ""
    head = _HEAD.search(evaluation.feedback)
    match head[1] if head else "":
        case "memory-bound":
            return Bottleneck.MEMORY.value
        case "compute-bound":
            return Bottleneck.COMPUTE.value
    if head and evaluation.descriptors.get("kernels", 1.0) != 1.0:
        return Bottleneck.MEMORY.value  # the judge counts no intermediates between kernels
    times = [case.times_ms["candidate"].value for case in evaluation.cases if case.times_ms]
    on_gpu = device_of(context) not in ("", "cpu")
    if on_gpu and times and max(times) < LAUNCH_BOUND_MS:
        return Bottleneck.LAUNCH.value
    return Bottleneck.LATENCY.value if head else ""


def _error(evaluation: Evaluation | None, attempts: Iterable[Attempt]) -> str:
    ours = (Status.CORRECT, Status.INFRA, None)
    if evaluation is not None and evaluation.status not in ours:
        return evaluation.status.value
    failures = Counter(attempt.status for attempt in attempts if attempt.status not in ours)
    return next((str(status) for status, n in failures.most_common(1) if n >= _HABIT), "")
