"""What came of one candidate, as a trainer needs it."""

from collections.abc import Mapping
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
            where there is one. Never the candidate's doing.
        message: the fault in words.
        rewards: by name and version; None where an input is not known.
        status: the verdict's; empty where there is none.
        correct: whether the candidate is.
        speedup: over the baseline, with its 95 % interval, as value, low and high.
        feedback: the judge's own words.
        next_turn: a message that asks for the next version.
        evaluator_version: who has judged.
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
        """Whether training has to leave the row out, because nobody knows what it is worth."""
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
