"""The result of one candidate, as a trainer needs it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.core.errors import EvolveError

UNREACHABLE = "unreachable"
"""Fault of an outcome that the server could not be asked for."""


class PinMismatch(EvolveError):
    """The server has another judge, or other versions of rewards, than this client pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A verdict with its rewards, or why there is none.

    Attributes:
        job: the job's id on the server.
        fault: why there is no verdict: `infra`, `expired`, `task`, `pin` or `unreachable`; empty
            if there is one. Never the candidate's doing.
        message: the fault in words.
        rewards: by name and version; None if an input is not known.
        status: the verdict's; empty if there is none.
        correct: whether the candidate is.
        speedup: over the baseline, with its 95 % interval, as value, low and high.
        feedback: the judge's own words.
        next_turn: a message that asks for the next version.
        evaluator_version: of the judge.
    """

    job: str
    fault: str = ""
    message: str = ""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    status: str = ""
    correct: bool = False
    speedup: tuple[float, float, float] | None = None
    feedback: str = ""
    next_turn: str = ""
    evaluator_version: str = ""

    @property
    def is_masked(self) -> bool:
        """Whether training has to leave the row out, because its reward is not known."""
        return bool(self.fault)


def read_answer(answer: Mapping[str, Any]) -> Outcome:
    """The outcome that a server's answer holds."""
    verdict = answer["verdict"] or {}
    speedup = verdict.get("speedup")
    return Outcome(
        job=answer["id"],
        fault=answer["fault"] or "",
        message=answer["message"],
        rewards=answer["rewards"],
        status=verdict.get("status", ""),
        correct=verdict.get("correct", False),
        speedup=None if speedup is None else tuple(speedup),
        feedback=verdict.get("feedback", ""),
        next_turn=verdict.get("next_turn", ""),
        evaluator_version=answer["evaluator_version"],
    )


def fault_in(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The first turn of an episode that has no verdict; None if all have one."""
    return next((outcome for outcome in outcomes if outcome.is_masked), None)


def worth_of(outcomes: Sequence[Outcome], reward: str, *, best: bool = True) -> float | None:
    """The reward of an episode: its best turn, or its last one.

    Args:
        outcomes: of its turns, at least one.
        reward: which of their rewards.
        best: whether the best turn counts instead of the last one.

    Returns:
        None if that is not known: a turn has no verdict, so that what followed was not the
        model's own, or a turn that counts has no score and may have been the best.
    """
    if fault_in(outcomes) is not None:
        return None
    counted = [outcome.rewards.get(reward) for outcome in (outcomes if best else outcomes[-1:])]
    scores = [score for score in counted if score is not None]
    return max(scores) if len(scores) == len(counted) else None


def parent_of(origin: Mapping[str, Any], outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The fields of a submission that name the parent of an episode's next program.

    The program of the prompt, if the row has one: all turns are then worth their gain over the same
    program. Else that of the turn before.
    """
    if "parent_source" in origin or not outcomes:
        return {}
    return {"parent": outcomes[-1].job}
