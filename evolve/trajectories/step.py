"""The canonical record of one step of a search, which every view, reward and exporter reads."""

from dataclasses import dataclass, field
from enum import StrEnum

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import NO_PROPOSALS
from evolve.core.measurement import Ratio, pooled
from evolve.core.model import (
    Exchange,
    Message,
    ModelReply,
    ReplyStatus,
    Sampling,
    TokenTrace,
)
from evolve.core.program import Assignment
from evolve.core.protocols import AddStatus
from evolve.core.source.tunables import render
from evolve.core.task import Task
from operators.prompting.reply_handling import REPAIR

PARENT = "parent"
"""The name of the main parent in an evaluation that timed both side by side."""

_SAYS_NOTHING = (Status.INFRA, Status.TIMING_UNBOUNDED)


class Made(StrEnum):
    """The result of a step."""

    PROGRAM = "program"  # a program that the run did not hold yet
    INSTANCE = "instance"  # a held program with other values of its tunables
    AGAIN = "again"  # another measurement of a known program
    NOTHING = "nothing"  # no program: `failure` says why


class Outcome(StrEnum):
    """The kinds of correct steps for training, counted separately."""

    GAIN = "gain"  # the whole interval of its speedup over its parent is above 1
    FIRST = "first correct version"  # made from no program, and not known to be a gain
    REPAIR = "repair"  # made from a program that had failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A program as it was known when a step was asked.

    Attributes:
        program: digest.
        assignment: of the instance that `evaluation` judged.
        source: as written; empty if texts were left out.
        evaluation: of its best instance by the run's baseline, else of its newest; None if there
            was no verdict yet. Without raw samples.
    """

    program: str
    assignment: Assignment = field(default_factory=dict)
    source: str = ""
    evaluation: Evaluation | None = None

    @property
    def code(self) -> str:
        """The source with the assignment written into it."""
        return render(self.source, self.assignment) if self.assignment else self.source

    @property
    def has_failed(self) -> bool:
        """Whether a verdict speaks against it."""
        return self.evaluation is not None and fault_of(self.evaluation) != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One ticket of a run with all that training may want of it; unknown is None, never zero.

    Attributes:
        run: name of the run.
        sequence: number of the step within the run, from 0.
        task: of the search; its `revision` is the identity of the judgement.
        baseline: of `ratio`.
        operator: how the child was made.
        model: the one asked, or by hand the one that the reply names; empty if none was.
        models: of this step and of all that led to it (they decide the use for training). If steps
            were read with their texts also of all else that a prompt shows: programs, attempts,
            notes, findings of other runs.
        generation: steps along main parents since one that had none, which has 0.
        made: the kind of result.
        note: the intent of the step, in the operator's or the model's words.
        failure: why there is no program.
        parents: digests of the programs that it was made from, the main one first.
        parent: the main one as it was known; None for a first step.
        parent_step: number of the step that made the main parent first.
        prompt_key: equal for steps whose models were asked the very same; empty without a model.
        shown_best: the highest ratio, as known then, of the programs whose text the prompt showed.
        shown_runs: other runs, with the revisions of their tasks, whose findings or programs a
            prompt may show. Both are empty if they were not recorded; findings are left out with
            texts.
        exchanges: all rounds with the model, oldest first; empty if texts were left out.
        reading: the operator's result for the last reply; None if none was read.
        program: digest of the child.
        language: of its kernels.
        source: of the child as written; empty if texts were left out.
        assignment: of its tunables.
        fidelity: how far up the ladder it was judged.
        evaluation: the judge's verdict on it; None if there is none (yet).
        later: further evaluations of the same instance in this run, oldest first, without
            feedback.
        best_before: the run's highest ratio before this step, screens left out.
        offer: the archive's answer; None if nothing was offered.
        slot: the place taken in the archive.
        on_best_path: whether the run's best program descends from this step along main parents,
            or is made by it.
        steering: changes by people right before this step, in words.
        created: when the run began, ISO 8601 in UTC.
    """

    task: Task
    run: str = ""
    sequence: int = 0
    baseline: str = "eager"
    operator: str = ""
    model: str = ""
    models: frozenset[str] = frozenset()
    generation: int = 0
    made: Made = Made.PROGRAM
    note: str = ""
    failure: str = ""
    parents: tuple[str, ...] = ()
    parent: Known | None = None
    parent_step: int | None = None
    prompt_key: str = ""
    shown_best: Ratio | None = None
    shown_runs: tuple[tuple[str, str], ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    reading: ReplyStatus | None = None
    program: str | None = None
    language: str | None = None
    source: str = ""
    assignment: Assignment = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.SEARCH
    evaluation: Evaluation | None = None
    later: tuple[Evaluation, ...] = ()
    best_before: Ratio | None = None
    offer: AddStatus | None = None
    slot: str | None = None
    on_best_path: bool = False
    steering: tuple[str, ...] = ()
    created: str = ""

    @property
    def id(self) -> str:
        """`RUN:SEQUENCE`, as users name a step."""
        return f"{self.run}:{self.sequence}"

    @property
    def is_search(self) -> bool:
        """Whether the search itself made it: no verification, no judging of a user's baseline."""
        return self.operator not in NO_PROPOSALS

    @property
    def code(self) -> str:
        """The child's source with its assignment written into it."""
        return render(self.source, self.assignment) if self.assignment else self.source

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The last request to the model; empty if there was none.

        A round in which it was to correct an answer asks for the same as the one before, in the
        same form, and holds the answer that could not be used: no such round is a prompt.
        """
        asked = [one.request for one in self.exchanges if one.request.purpose != REPAIR]
        return asked[-1].messages if asked else ()

    @property
    def reply(self) -> ModelReply | None:
        """The model's answer in the round that decided."""
        return self.exchanges[-1].reply if self.exchanges else None

    @property
    def trace(self) -> TokenTrace | None:
        """Tokens of the reply; None if none are stored, or it did not answer `prompt` itself."""
        last = self.exchanges[-1] if self.exchanges else None
        return None if last is None or last.request.purpose == REPAIR else last.reply.trace

    @property
    def sampling(self) -> Sampling | None:
        return self.exchanges[-1].request.sampling if self.exchanges else None

    @property
    def island(self) -> str:
        """The island of the slot taken; empty if the archive has none."""
        return (self.slot or "").partition("/")[0] if "/" in (self.slot or "") else ""

    @property
    def status(self) -> Status | None:
        return None if self.evaluation is None else self.evaluation.status

    @property
    def correct(self) -> bool:
        """Correct, made by custom kernels, and not refuted since."""
        return self.evaluation is not None and self.evaluation.strict and not self.refuted

    @property
    def refuted(self) -> str:
        """The fault that a later evaluation of the same instance found; empty if none did."""
        return next((fault for again in self.later if (fault := fault_of(again))), "")

    @property
    def ratio(self) -> Ratio | None:
        """Speedup over the baseline, by all that is known by now; None unless correct and timed."""
        return self.ratio_to(self.baseline)

    def ratio_to(self, baseline: str) -> Ratio | None:
        """`ratio`, to another baseline."""
        found = [one.ratios[baseline] for one in self.timings(baseline)]
        if len(found) > 1:
            return Ratio.exp(pooled([ratio.log() for ratio in found]))
        return found[0] if found else None

    def timings(self, baseline: str) -> tuple[Evaluation, ...]:
        """The evaluations that say how fast the child is beside a baseline; none unless correct.

        The newest verification if there is one. Else all evaluations of the search, as fitness
        has them: a lucky first measurement is not learned from.
        """
        first = self.evaluation
        if first is None or not self.correct:
            return ()
        has_time = [one for one in (first, *self.later) if speedup(baseline, one) is not None]
        verified = [one for one in has_time if one.fidelity is Fidelity.VERIFY]
        if verified:
            return (verified[-1],)
        full = [one for one in has_time if one.fidelity is Fidelity.SEARCH]
        alike = tuple(one for one in full if comparable(one, first))
        return alike or tuple(one for one in has_time if one is first)

    @property
    def gain(self) -> Ratio | None:
        """Speedup over the main parent.

        Direct if both were timed side by side; else the quotient of both ratios to the baseline,
        and None if either is missing, or was judged on another device or by another judge.
        """
        if self.evaluation is not None and PARENT in self.evaluation.ratios:
            return self.ratio_to(PARENT)
        known = None if self.parent is None else self.parent.evaluation
        own = self.ratio
        if known is None or own is None or not comparable(known, self.evaluation):
            return None
        theirs = speedup(self.baseline, known)
        return None if theirs is None else own / theirs

    @property
    def advance(self) -> Ratio | None:
        """Speedup over its parent, or without one over the baseline of `ratio`.

        A first step and a repair have no parent that is correct.
        """
        return self.ratio if self._parent_failed or self.parent is None else self.gain

    @property
    def outcome(self) -> Outcome | None:
        """The kind of a correct step; None if none is known to apply."""
        if self.advance is None:
            return None
        if self._parent_failed:
            return Outcome.REPAIR
        if self.advance.is_gain:
            return Outcome.GAIN
        return Outcome.FIRST if self.parent is None else None

    @property
    def _parent_failed(self) -> bool:
        return self.parent is not None and self.parent.has_failed

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all findings about the child, each once."""
        judged = (() if self.evaluation is None else (self.evaluation,)) + self.later
        return tuple(dict.fromkeys(label.name for one in judged for label in one.labels))


def fault_of(evaluation: Evaluation) -> str:
    """Why an evaluation speaks against its candidate; empty if it does not, or cannot tell."""
    if evaluation.status is Status.CORRECT:
        return "not made by kernels of its own" if evaluation.custom is False else ""
    return "" if evaluation.status in _SAYS_NOTHING else str(evaluation.status)


def speedup(baseline: str, *evaluations: Evaluation | None) -> Ratio | None:
    """The ratio of the first evaluation that is strictly correct and has one."""
    for found in evaluations:
        if found is not None and found.strict and baseline in found.ratios:
            return found.ratios[baseline]
    return None


def comparable(one: Evaluation | None, other: Evaluation | None) -> bool:
    """Whether two verdicts are of one task, kind of device and judge."""
    return one is not None and other is not None and _judged_by(one) == _judged_by(other)


def _judged_by(evaluation: Evaluation) -> tuple[str, str, str]:
    return evaluation.task_revision, evaluation.device_class, evaluation.evaluator_version
