"""Steps that are never trained on, with any recipe."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.trajectories.decontamination.graphs import Tracer
from evolve.trajectories.decontamination.holdout import HeldOut
from evolve.trajectories.decontamination.keys import environment_keys, holds_key
from evolve.trajectories.decontamination.licences import allows_training, licence_of
from evolve.trajectories.step import Step


class Reason(StrEnum):
    """Why a step is left out."""

    HELD_OUT = "task is held out"
    WEAK = "task accepts what computes nothing"
    LICENCE = "licence of the task forbids training"
    LICENCE_NOT_NAMED = "licence is not one of --licences-allowed"
    CHEAT = "flagged as cheating"
    MODEL = "made by a model that is not allowed, or from a program of one"
    SHOWS_HELD_OUT = "prompt shows a held-out task"
    SHOWS_EXCLUDED = "prompt shows findings of a run that is left out"
    SHOWS_TEST = "prompt of a training row shows a task of the test split, or findings on it"
    SHOWS_UNKNOWN = "prompt shows findings of a run that is not known"
    KEY = "text holds what looks like a key"


class Excluded(NamedTuple):
    """Why a task is left out; `detail` names the held-out task that it is."""

    reason: Reason
    detail: str = ""


CHEATING = frozenset(
    ("decoy_kernel", "evaluator_access", "foreign_library", "introspection", "timing_mismatch")
)
"""Labels of the judge that make a step unfit for training, with any verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Exclusions.

    Attributes:
        held_out: tasks that nothing is trained on.
        models: names or patterns that are allowed; empty for all.
        licences: SPDX identifiers or patterns that are allowed; empty for all that do not forbid.
        keys: that no row may hold, besides strings that look like one.
    """

    held_out: HeldOut = field(default_factory=HeldOut)
    models: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    keys: tuple[str, ...] = field(default_factory=environment_keys)

    def of_task(self, task: Task, tracer: Tracer | None = None) -> Excluded | None:
        """Why every step on a task is left out; None if it is not."""
        if (match := self.held_out.match(task, tracer)) is not None:
            return Excluded(Reason.HELD_OUT, f"same {match.how} as {match.name}")
        if not allows_training(licence_of(task.source), self.licences):
            return Excluded(Reason.LICENCE_NOT_NAMED if self.licences else Reason.LICENCE)
        if holds_key(task.source, self.keys):
            return Excluded(Reason.KEY)
        return None

    def of_step(self, step: Step) -> Reason | None:
        """Why a step of a task that may be trained on is left out; None if it is not."""
        if is_cheat(step):
            return Reason.CHEAT
        if self.models and not all(_named(model, self.models) for model in step.models):
            return Reason.MODEL
        if self.held_out.shown_in(message.content for message in step.prompt):
            return Reason.SHOWS_HELD_OUT
        if any(holds_key(text, self.keys) for text in _texts(step)):
            return Reason.KEY
        return None


def is_cheat(step: Step) -> bool:
    """Whether the judge, then or later, found that a program games it."""
    judged = (() if step.evaluation is None else (step.evaluation,)) + step.later
    hacked = any(one.status is Status.HACK for one in judged)
    return hacked or not CHEATING.isdisjoint(step.labels)


def _named(model: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in patterns)


def _texts(step: Step) -> Iterator[str]:
    """The part of a step that may come into a row."""
    yield from (message.content for message in step.prompt)
    if step.reply is not None:
        yield from (step.reply.text, step.reply.reasoning)
    yield from (step.note, step.source)
    known = step.parent
    if known is not None:
        yield known.source
    for judged in (step.evaluation, None if known is None else known.evaluation):
        if judged is not None:
            yield judged.feedback
