"""Review of large jumps in speed: a model looks for a hack, and the program is measured again."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from evolve.core.evaluation import Fidelity, Status
from evolve.core.model import Exchange, ModelRequest, ReplyStatus
from evolve.core.protocols import Context, Declined, Elite, Failed, Proposal, Reading
from operators.base import Base, measured_again
from operators.checks import check_number, check_whole
from operators.prompting.composition import Memory, Prompted
from operators.prompting.replies import without_thought
from operators.prompting.reply_handling import Answering
from operators.quoting import one_line, quote, shortened

REVIEW = "review"
"""Purpose of a request that asks whether a gain is real."""

_CASES = Path(__file__).with_name("hack_cases.yaml")
_LOOKED_AT = 16  # of the best programs
_OF_RUN = 64  # newest failures, among which hacks are looked for
_MAX_CODE = 2000  # characters of a program that was a hack
_MAX_MEASUREMENTS = 3  # measurements of one program
_WORD = re.compile(r"[A-Za-z_]\w*")
_VERDICT = re.compile(r"^\W*HACK\W+(yes|no)\b", re.MULTILINE | re.IGNORECASE)
_WHY = re.compile(r"^\W*WHY\W+(.+)", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Case:
    """A known hack: its name, its method, and identifiers that such programs contain."""

    name: str
    what: str
    marks: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review(Answering):
    """The review of reward jumps in CUDA-L1 (arXiv 2507.14111), with repeated measurements.

    If a program is `jump` times as fast as the best one before it, a model is asked once to show
    that the gain is not real; the prompt contains the most similar known hacks. These include the
    programs of the run that the judge called hacks. Then the program is measured again, on another
    device if there is one, until its interval is within `within`, three times in all at most.

    Unlike in the paper, which takes the reward away, the model's answer decides nothing: it is
    recorded, and the measurements and the verification decide.

    Args:
        jump: least ratio to the best program before it.
        within: largest relative half-width of its speedup's interval.
        cases: how many known hacks the prompt shows.
    """

    jump: float = 2.0
    within: float = 0.1
    cases: int = 3

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_number("operators.*.jump", self.jump, least=1)
        check_number("operators.*.within", self.within, least=0.001)
        check_whole("operators.*.cases", self.cases, least=0)

    @property
    def parents(self) -> int:
        return 0

    def propose(self, context: Context) -> ModelRequest | Proposal | Declined:
        asked = self.asked_about(context, REVIEW)
        for elite in self._jumps(context):
            trials = context.facts.trials(elite.program)
            full = [trial for trial in trials if trial.fidelity is Fidelity.SEARCH]
            if any(trial.status is None for trial in full):
                continue
            if (elite.program, elite.assignment) not in asked:
                return self._ask(context, elite)
            if 1 < elite.evaluations < _MAX_MEASUREMENTS and elite.fitness.half_width > math.log1p(
                self.within
            ):
                return measured_again(
                    context, elite, f"its measurements are not within {self.within:.0%}"
                )
        return Declined("no large jump is left to review")

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        program = Base.recall(exchanges).digest
        elite = next((each for each in context.elites if each.program == program), None)
        if elite is None:
            return Reading(ReplyStatus.STEP, Failed("the program is not held any more"))
        text = without_thought(exchanges[-1].reply.text)
        verdict, why = _VERDICT.search(text), _WHY.search(text)
        said = f"hack {verdict[1].lower()}" if verdict else "no verdict"
        note = f"review: {said}{f': {one_line(why[1])}' if why else ''}"
        return Reading(ReplyStatus.STEP, measured_again(context, elite, note))

    def _jumps(self, context: Context) -> Iterator[Elite]:
        """Of the best programs those that are `jump` times as fast as all before them."""
        best = context.elites[:_LOOKED_AT]
        for elite in best:
            before = [e.fitness.value for e in context.elites if e.sequence < elite.sequence]
            if before and elite.fitness.value - max(before) >= math.log(self.jump):
                yield elite

    def _ask(self, context: Context, elite: Elite) -> ModelRequest | Declined:
        source = context.facts.source(elite.program)
        shown = similar(source, [*known_cases(), *hacks_of(context)], self.cases)
        return self.ask(
            context,
            self.text("review", jump=f"{self.jump:g}"),
            base=Base.of([elite]),
            answer=self.text("answer_review"),
            heading="The program in question",
            memory=Memory.CLEAN,
            directed=False,
            extra=self.listed("cases", 1, [quote(f"{c.name}: {c.what}", "case") for c in shown]),
            purpose=REVIEW,
        )


@lru_cache
def known_cases() -> tuple[Case, ...]:
    """The cases that ship."""
    found: list[Mapping[str, Any]] = yaml.safe_load(_CASES.read_text(encoding="utf-8"))
    return tuple(Case(each["name"], each["what"], frozenset(each["marks"])) for each in found)


def hacks_of(context: Context) -> Iterator[Case]:
    """Programs of the run that the judge has called hacks."""
    for attempt in context.facts.recent(_OF_RUN, failed=True):
        if attempt.status is Status.HACK and attempt.program is not None:
            source = context.facts.source(attempt.program)
            what = f"{attempt.feedback}\n{source}"
            words = frozenset(_WORD.findall(source))
            yield Case(f"step {attempt.sequence}", shortened(what, _MAX_CODE), words)


def similar(source: str, cases: Sequence[Case], count: int) -> list[Case]:
    """The cases that share most identifiers with a program, the most similar first."""
    words = {*_WORD.findall(source)}
    ranked = sorted(cases, key=lambda case: -len(case.marks & words) / max(1, len(case.marks)))
    return ranked[:count]
