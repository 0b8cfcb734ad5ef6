"""A run that begins with the verdicts of another one: its steps are copied, and cost nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from evolve.core.evaluation import Fidelity
from evolve.core.lineage import NO_PROPOSALS
from evolve.core.measurement import Ratio
from evolve.core.records import Judge, RunRow, Ticket, TicketState
from evolve.core.task import Task
from evolve.store.database.schema import evaluation, run, ticket
from evolve.store.tables import evaluations, programs, runs, stored_tickets, tickets
from evolve.store.tables.evaluations import SAYS_NOTHING

_JUDGED = (
    select(ticket)
    .join(evaluation, evaluation.c.ticket == ticket.c.id)
    .where(
        ticket.c.run == bindparam("run"),
        ticket.c.state == TicketState.TOLD.value,
        ticket.c.operator.not_in(NO_PROPOSALS),
        ticket.c.fidelity.in_((Fidelity.SEARCH.value, Fidelity.SCREEN.value)),
        evaluation.c.status.not_in(SAYS_NOTHING),
        evaluation.c.task_revision == bindparam("task_revision"),
        evaluation.c.device_class == bindparam("device_class"),
        evaluation.c.evaluator_version == bindparam("evaluator_version"),
    )
    .order_by(evaluation.c.id)
)
_GO_ON = (
    update(run)
    .where(run.c.id == bindparam("of"))
    .values(asked=bindparam("next"), tunings=bindparam("tuned"))
)


def judged_steps(
    connection: Connection, run_id: int, task_revision: str, judge: Judge
) -> list[Ticket]:
    """The steps of a run whose verdicts hold for such a judge, in the order of telling.

    Without verifications and the user's own baseline, and without raw samples, which stay where
    they were taken.
    """
    key = {"run": run_id, "task_revision": task_revision} | judge._asdict()
    rows = connection.execute(_JUDGED, key).all()
    return [_without_samples(stored_tickets.load(connection, row)) for row in rows]


def _without_samples(step: Ticket) -> Ticket:
    verdict = step.evaluation
    return step if verdict is None else replace(step, evaluation=replace(verdict, samples={}))


def create(
    connection: Connection,
    *,
    name: str,
    task: Task,
    config: Mapping[str, Any],
    seed: int,
    steps: Sequence[Ticket],
) -> RunRow:
    """A new run that has asked for these steps already, with their numbers, and holds the verdicts.

    They are as after a crash: the next process of the run tells them to its archive first, in this
    order. They are no part of its budget, nor is what they have cost.
    """
    created = runs.create(connection, name=name, task=task, config=config, seed=seed)
    known: set[str] = set()
    copies: dict[int, int] = {}  # ids by number
    for step in sorted(steps, key=lambda step: step.sequence):
        copies[step.sequence] = _copied(connection, created.id, step, known)
    for step in steps:
        _put_verdict(connection, copies[step.sequence], step)
    following = max(copies, default=-1) + 1
    tuned = max((step.tunings for step in steps), default=0)
    connection.execute(_GO_ON, {"of": created.id, "next": following, "tuned": tuned})
    if best := _best(steps, created.baseline):
        bounds = {"best": best.value, "best_low": best.low, "best_high": best.high}
        values = bounds | {"best_to_beat": best.high}
        connection.execute(update(run).where(run.c.id == created.id).values(values))
    return created


def _best(steps: Sequence[Ticket], baseline: str) -> Ratio | None:
    """The surest of the full verdicts: what a stall is counted from."""
    verdicts = [step.evaluation for step in steps if step.evaluation is not None]
    full = (each for each in verdicts if each.strict and each.fidelity is Fidelity.SEARCH)
    ratios = (each.ratios[baseline] for each in full if baseline in each.ratios)
    return max(ratios, key=lambda ratio: ratio.low, default=None)


def _copied(connection: Connection, run_id: int, step: Ticket, known: set[str]) -> int:
    """The id of a copy; parents that were not copied before it are left out."""
    proposal = step.proposal
    if proposal is None:
        raise ValueError(f"step {step.sequence} holds no proposal")
    item = replace(
        step,
        state=TicketState.EVALUATED,
        model="",
        method="",
        parents=tuple(parent for parent in step.parents if parent in known),
        proposal=replace(proposal, parents=tuple(p for p in proposal.parents if p in known)),
    )
    known.add(proposal.program.digest)
    return tickets.opened(connection, run_id, item).id


def _put_verdict(connection: Connection, copy: int, step: Ticket) -> None:
    proposal, verdict = step.proposal, step.evaluation
    if proposal is None or verdict is None:
        raise ValueError(f"step {step.sequence} has no verdict")
    instance = programs.put_instance(connection, proposal.program, proposal.assignment)
    evaluations.put(connection, copy, instance, replace(verdict, device_time_s=0.0))
