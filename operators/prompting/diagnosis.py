"""The fault of a program, or the limit of its speed: the key of retrieval."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evolve.core.evaluation import Evaluation, Status
from evolve.core.protocols import Attempt, Context
from evolve.core.task import Task
from evolve.languages.registry import languages
from operators.knowledge import PRODUCTS, Bottleneck, Diagnosis, device_path, operation_of
from operators.prompting.ceiling import (
    WELL_USED,
    arithmetic_share,
    memory_share,
    traffic_share,
)
from operators.prompting.prompt_context import Exhibit

LAUNCH_BOUND_MS = 0.02
"""Below this a GPU kernel's time is mostly that of launching it."""

_HEAD = re.compile(r"^[ \t]*(memory-bound|compute-bound|neither)\b", re.MULTILINE)
"""How lines begin that `feedback.bound` writes; the slowest case's is the first."""

_PATTERNS = {"elementwise": "elementwise", "reduction": "reduction", "two_pass": "reduction"}
_NARROW = {
    "fp8": re.compile(r"\bfloat8_"),
    "int8": re.compile(r"\bu?int8\b"),
    "half": re.compile(r"\bb?float16\b|\bhalf\(\)"),
}

_LITTLE = 0.25  # of arithmetic: a product below that waits for something else
_FAR = 10  # times as near to the one limit as to the other: no intermediates make up for that
_ROUNDING = 0.005  # of shares in the judge's words
_HABIT = 2  # failures alike; one is an accident

_LIMIT = re.compile(r"^\W*LIMIT\W+(\w+)", re.MULTILINE | re.IGNORECASE)


def diagnose(
    context: Context,
    language: str,
    shown: Sequence[Exhibit],
    attempts: Iterable[Attempt] = (),
) -> Diagnosis:
    """The diagnosis by the facts, without a model.

    Args:
        context: for the task's category and the device.
        language: of the child.
        shown: the programs to work on, the one to change first.
        attempts: steps from it: the failure that most of them share, and at least two, is
            what the next one is to be kept from.
    """
    evaluation = shown[0].evaluation if shown else None
    return Diagnosis(
        bottleneck=bottleneck(context, evaluation),
        error=_error(evaluation, attempts),
        category=pattern_of(context.task, evaluation),
        device=device_of(context),
        language=language,
        precision=precision_of(context.task),
    )


def pattern_of(task: Task, evaluation: Evaluation | None) -> str:
    """The kind of operation that takes a program's time: the task's, but for what became of it.

    A product without tensor cores on a GPU is a sum or a pass over memory: of 2/14 in KernelBench
    a matrix-vector product is left, and notes on tiles of matrices say nothing of that.
    """
    wanted = operation_of(task.category, task.source)
    made: Mapping[str, float | str] = {} if evaluation is None else evaluation.descriptors
    language = languages().get(str(made.get("language")))
    if wanted not in PRODUCTS or language is None or not language.is_for_gpus:
        return wanted
    if made.get("tensor_cores") != "no":  # or unknown
        return wanted
    return _PATTERNS.get(str(made.get("compute_pattern")), wanted)


def precision_of(task: Task) -> str:
    """What a task's operands are: `half`, `fp8`, `int8`, or `fp32`, which may be cut in parts."""
    if task.precision in ("fp16", "bf16"):
        return "half"
    named = (kind for kind, pattern in _NARROW.items() if pattern.search(task.source))
    return next(named, "fp32")


def reconsidered(found: Diagnosis, words: str) -> Diagnosis:
    """The facts' diagnosis with the limit that a model named, where it named a known one."""
    named = _LIMIT.search(words)
    limit = named[1].lower() if named else ""
    return replace(found, bottleneck=limit) if limit in [*Bottleneck] else found


def device_of(context: Context) -> str:
    """The path of the judging device, as documents are tagged; empty where it is unknown."""
    return device_path(context.device.get("device_class", ""))


def bottleneck(context: Context, evaluation: Evaluation | None) -> str:
    """The limit by the judge's own words, else by the time; empty if neither shows it.

    Where neither the inputs' and outputs' bytes nor arithmetic explains the time, the program's own
    traffic may: what its launches are given, intermediates too. Else it is the one that is nearer
    to its limit, if arithmetic is well used. Where traffic is not known of several kernels that
    use arithmetic little, it is taken to be memory, unless inputs and outputs are next to nothing.

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
    share = traffic_share(evaluation)
    several = share is None and evaluation.descriptors.get("kernels", 1.0) != 1.0
    of_arithmetic = arithmetic_share(evaluation)
    if share is None and of_arithmetic > _FAR * max(memory_share(evaluation), _ROUNDING):
        return Bottleneck.COMPUTE.value
    if (share or 0.0) < WELL_USED and of_arithmetic > max(_LITTLE, share or 0.0):
        return Bottleneck.COMPUTE.value
    if head and (several or (share or 0.0) >= WELL_USED):
        return Bottleneck.MEMORY.value
    times = [case.times_ms["candidate"].value for case in evaluation.cases if case.times_ms]
    on_gpu = device_of(context) not in ("", "cpu")
    if on_gpu and times and max(times) < LAUNCH_BOUND_MS:
        return Bottleneck.LAUNCH.value
    return Bottleneck.LATENCY.value if head else ""


def _error(evaluation: Evaluation | None, attempts: Iterable[Attempt]) -> str:
    faultless = (Status.CORRECT, Status.INFRA, None)
    if evaluation is not None and evaluation.status not in faultless:
        return evaluation.status.value
    failures = Counter(attempt.status for attempt in attempts if attempt.status not in faultless)
    return next((str(status) for status, n in failures.most_common(1) if n >= _HABIT), "")
