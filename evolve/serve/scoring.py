"""From a verdict to rewards: the step that a job would have been in a search."""

from collections.abc import Mapping
from typing import Any

from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.model import ReplyStatus
from evolve.core.program import Program
from evolve.core.task import Task
from evolve.trajectories.step import Known, Made, Step


def step_of(
    task: Task,
    request: Mapping[str, Any],
    evaluation: Evaluation | None,
    parent: Known | None,
) -> Step:
    """A job as the step of a search.

    Args:
        task: of the candidate.
        request: as the job keeps it.
        evaluation: the verdict; None if the reply held no program.
        parent: the candidate that this one was made from, if the client names it.
    """
    found = evaluation is not None
    return Step(
        task=task,
        baseline=request["baseline"],
        parents=(parent.program,) if parent else (),
        parent=parent,
        made=Made.PROGRAM if found else Made.NOTHING,
        reading=ReplyStatus(request["reading"]),
        failure="" if found else request["note"],
        program=Program(request["source"]).digest if found else None,
        source=request["source"],
        fidelity=Fidelity(request["fidelity"]),
        evaluation=evaluation,
    )


def parent_of(request: Mapping[str, Any]) -> Known | None:
    """The candidate that a job's was made from, where its text came along; it has no verdict."""
    source = request["parent_source"]
    return Known(program=Program(source).digest, source=source) if source else None


def known_of(request: Mapping[str, Any], verdict: Mapping[str, Any]) -> Known:
    """The candidate of a finished job, as the parent of another."""
    evaluation = Evaluation.from_json(verdict)
    source = request["source"]
    return Known(program=Program(source).digest, source=source, evaluation=evaluation)
