"""Filters: why a step is left out of training data. Small, named, and pinned by a version."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from evolve.core.digest import framed_digest
from evolve.core.evaluation import Fidelity
from evolve.core.model import CallStatus
from evolve.core.randomness import stream
from evolve.core.source.normalise import normalised_digest
from evolve.languages.triton import launches_triton
from evolve.trajectories.rewards.reward import Grade, grade
from evolve.trajectories.rewards.shaping import keep_probability
from evolve.trajectories.step import Made, Step
from operators.llm.clean_up import NAME as CLEAN_UP
from operators.prompting.reply_handling import REPAIR as MEND

Check = Callable[[Step], str]
"""Why a step is left out, as a phrase that is the same for all such steps; empty keeps it."""

_MARK = re.compile(r"<[|\uff5c][^\s<>|\uff5c]+[|\uff5c]>")  # <|im_end|>

MIN_GAIN = 1.05
"""Gain over its parent that a step has to reach to be trained on as one of the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A pinned check.

    Attributes:
        name: with its version: `unique@1`.
        source: the paper or project that has it.
        start: makes a check, fresh for every export, for it may remember steps.
        reads_texts: whether it needs prompts, replies or sources.
    """

    name: str
    source: str
    start: Callable[[], Check]
    reads_texts: bool = False

    @property
    def remembers(self) -> bool:
        """Whether its decision on a step depends on earlier ones."""
        return self.start() is not self.start()


def by_model(step: Step) -> str:
    """A step of the search that a model's reply decided."""
    if not step.is_search:
        return "not of the search itself"
    return "" if step.reading is not None else "no model made it"


def new_program(step: Step) -> str:
    """It brought a program that the run did not hold."""
    if step.made is Made.NOTHING:
        return "no program came of it"
    return "" if step.made is Made.PROGRAM else "measured or tuned what was there"


def judged(step: Step) -> str:
    """A verdict that says something."""
    return "" if grade(step) is not None else "no verdict, or one that says nothing"


def correct(step: Step) -> str:
    """Correct, made by custom kernels, and not refuted since."""
    if step.refuted:
        return "refuted by a later evaluation"
    return "" if grade(step) is Grade.CORRECT else "not correct"


def timed(step: Step) -> str:
    """Measured against the baseline."""
    return "" if step.ratio is not None else "not timed"


def better_than_parent(step: Step) -> str:
    """Faster than its parent by a whole interval; without a parent, correct and timed."""
    if step.parent is None:
        return timed(step)
    gain = step.gain
    if gain is None:
        return "gain over its parent not known"
    return "" if gain.is_gain else "no gain over its parent beyond the error"


def on_best_path(step: Step) -> str:
    """The run's best program descends from it."""
    return "" if step.on_best_path else "not on the path to the best program"


def refines(step: Step) -> str:
    """Made from a parent: a first step is a translation, which is another task."""
    return "a first step" if step.parent is None else ""


def large_gain(step: Step) -> str:
    """A gain over its parent that is worth copying."""
    gain = step.gain
    enough = gain is not None and gain.is_gain and gain.value >= MIN_GAIN
    return "" if enough else f"gain over its parent below {MIN_GAIN}"


def not_shown_faster(step: Step) -> str:
    """Its prompt showed no program that is faster than the result."""
    shown, ratio = step.shown_best, step.ratio
    faster = shown is not None and ratio is not None and shown.value > ratio.value
    return "its prompt showed a faster program" if faster else ""


def whole_reply(step: Step) -> str:
    """A reply that ended by itself, and has text that no trainer takes for another turn."""
    reply = step.reply
    if reply is None or not reply.text.strip():
        return "no text of a reply is stored"
    if reply.status is not CallStatus.COMPLETED:
        return "the reply was cut off"
    return "the reply holds marks of a chat template" if _MARK.search(reply.text) else ""


def repairs(step: Step) -> str:
    """Made from a program that had failed."""
    if step.parent is None or step.parent.evaluation is None:
        return "no verdict on its parent"
    return "" if step.parent.has_failed else "its parent had not failed"


def first_step(step: Step) -> str:
    """A translation: made from no program."""
    return "" if step.parent is None else "made from another program"


def cleaned_up(step: Step) -> str:
    """The compiler's program as a model has written it anew."""
    return "" if step.operator == CLEAN_UP else "not the compiler's program written anew"


def launches(step: Step) -> str:
    """Its syntax tree defines a Triton kernel and launches it."""
    return "" if launches_triton(step.source) else "launches no Triton kernel of its own"


def at_once(step: Step) -> str:
    """It answered the prompt itself, not a request to correct an answer."""
    last = step.exchanges[-1] if step.exchanges else None
    if last is None or not last.reply.text.strip():
        return "no text of a reply is stored"
    return "answered when asked to correct an answer" if last.request.purpose == MEND else ""


def verified(step: Step) -> str:
    """Measured again in fresh processes, and still correct."""
    again = {one.fidelity for one in step.later}
    return "" if Fidelity.VERIFY in again else "not verified"


def unique() -> Check:
    """A check that keeps the first of steps whose programs differ in layout and values only.

    Steps without a program are compared by the texts of their replies.
    """
    seen: set[int] = set()

    def check(step: Step) -> str:
        text = step.source or framed_digest("reply", "" if step.reply is None else step.reply.text)
        key = int(normalised_digest(text)[:16], 16)
        if key in seen:
            return f"the same {'program' if step.source else 'reply'} as in an earlier row"
        seen.add(key)
        return ""

    return check


def covers(step: Step) -> str:
    """Profiling-based rejection sampling; the draw is a function of the step's name."""
    known = None if step.evaluation is None else step.evaluation.descriptors.get("coverage")
    share = known if isinstance(known, float) else None
    kept = keep_probability(share, correct=grade(step) is Grade.CORRECT)
    if kept is None:
        return "no profile of it"
    drawn = stream(0, f"prs/{step.run}", step.sequence).random()
    return "" if drawn < kept else "too small a share of device time in its own kernels"


def pinned(
    name: str, check: Check, source: str = "evolve-kernels", *, reads_texts: bool = False
) -> Filter:
    """A filter of a check that remembers nothing."""
    return Filter(name=name, source=source, start=lambda: check, reads_texts=reads_texts)


_KERNEL_SMITH = "Kernel-Smith, arXiv 2603.28342"
_AUTOTRITON = "AutoTriton, arXiv 2507.05687"

BY_MODEL = pinned("by_model@1", by_model)
NEW_PROGRAM = pinned("new_program@1", new_program)
JUDGED = pinned("judged@1", judged)
CORRECT = pinned("correct@1", correct)
TIMED = pinned("timed@1", timed)
BETTER = pinned("better_than_parent@2", better_than_parent, _KERNEL_SMITH)
ON_BEST_PATH = pinned("on_best_path@1", on_best_path, _KERNEL_SMITH)
REFINES = pinned("refines@1", refines, _KERNEL_SMITH)
LARGE_GAIN = pinned("large_gain@1", large_gain, _KERNEL_SMITH)
NOT_SHOWN = pinned("not_shown_faster@1", not_shown_faster, _KERNEL_SMITH, reads_texts=True)
REPAIRS = pinned("repairs@1", repairs, "KernelBench-X, arXiv 2605.04956")
WHOLE_REPLY = pinned("whole_reply@1", whole_reply, reads_texts=True)
FIRST_STEP = pinned("first_step@1", first_step, _AUTOTRITON)
CLEANED_UP = pinned("cleaned_up@1", cleaned_up, _AUTOTRITON)
LAUNCHES_TRITON = pinned("launches_triton@1", launches, _AUTOTRITON, reads_texts=True)
AT_ONCE = pinned("at_once@1", at_once, reads_texts=True)

ADDITIONAL = (
    pinned("verified@1", verified),
    pinned("prs@1", covers, "Dr. Kernel, arXiv 2602.05885"),
    Filter(name="unique@1", source=_KERNEL_SMITH, start=unique, reads_texts=True),
    NOT_SHOWN,
    LARGE_GAIN,
    ON_BEST_PATH,
)
"""Filters that a user may add to any recipe: `kto@1+unique@1`."""
