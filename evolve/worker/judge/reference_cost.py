"""The cost of a task's reference on the device, before any candidate is judged."""

from dataclasses import replace
from functools import partial

from evolve.core.reference import ReferenceCost
from evolve.worker.evidence import eager_rounding
from evolve.worker.judge.outcome import task_environment
from evolve.worker.session.candidate_session import CandidateSession
from evolve.worker.session.prepared_task import PreparedTask
from evolve.worker.timing.comparison import Timekeeper
from evolve.worker.timing.speed_of_light import SpeedOfLight


def reference_cost(
    task: PreparedTask,
    session: CandidateSession,
    timekeeper: Timekeeper,
    speed_of_light: SpeedOfLight,
    tier: str,
) -> ReferenceCost:
    """Times and limits of the task's timed cases, with the facts that verdicts are stored with."""
    found = speed_of_light.reference(task, timekeeper.reference_s(task))
    facts = task_environment(task.loaded, session.device, tier)
    facts |= eager_rounding.described(task, session)
    return replace(found, device=facts, longest_sum=_longest_sum(task, session))


def _longest_sum(task: PreparedTask, session: CandidateSession) -> int:
    """By the task's own inputs, whose outcomes are expected of every candidate anyway."""
    checks = (session.hidden(partial(case.check, "task", 0)) for case in task.timed)
    return max(check.expected.reduction for check in checks)
