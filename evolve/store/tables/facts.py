"""A run's past, as operators may read it."""

from sqlalchemy import Connection, and_, bindparam, exists, func, select

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import NOT_SEARCHED
from evolve.core.measurement import Ratio
from evolve.core.program import Program
from evolve.core.protocols import Trial
from evolve.core.records import Judge
from evolve.core.source.normalise import normalised_digest
from evolve.store.database.schema import (
    evaluation,
    evaluation_ratio,
    instance,
    program,
    run,
    ticket,
)
from evolve.store.tables import evaluations, programs

# Neither the baseline of a user nor the check of a reference is an attempt of the search.
_is_search = and_(*(ticket.c.operator != name for name in NOT_SEARCHED))

_TRIALS = (
    select(
        instance.c.assignment,
        ticket.c.fidelity,
        evaluation.c.status,
        evaluation_ratio.c.ratio,
        evaluation_ratio.c.ratio_low,
        evaluation_ratio.c.ratio_high,
    )
    .select_from(program)
    .join(instance, instance.c.program == program.c.id)
    .join(ticket, and_(ticket.c.run == bindparam("run"), ticket.c.instance == instance.c.id))
    .join(run, run.c.id == ticket.c.run)
    .outerjoin(evaluation, evaluation.c.ticket == ticket.c.id)
    .outerjoin(evaluation_ratio, evaluations.TO_BASELINE)
    .where(program.c.digest == bindparam("digest"), _is_search)
    .order_by(ticket.c.sequence)
)
_SEEN = select(
    exists()
    .where(ticket.c.run == bindparam("run"), _is_search)
    .where(ticket.c.instance == instance.c.id)
    .where(instance.c.digest == bindparam("digest"))
)
_TWIN = (
    select(program.c.digest)
    .join(instance, instance.c.program == program.c.id)
    .join(ticket, and_(ticket.c.run == bindparam("run"), ticket.c.instance == instance.c.id))
    .where(
        program.c.normalised == bindparam("normalised"),
        program.c.digest != bindparam("digest"),
        _is_search,
    )
    .order_by(ticket.c.sequence)
    .limit(1)
)
_MADE_BY = (
    select(ticket.c.sequence)
    .where(ticket.c.run == bindparam("run"), ticket.c.operator == bindparam("operator"))
    .order_by(ticket.c.sequence)
)
_RECORDED = (
    select(ticket.c.id)
    .join(instance, instance.c.id == ticket.c.instance)
    .join(evaluation, evaluation.c.ticket == ticket.c.id)
    .where(
        ticket.c.run == bindparam("run"),
        instance.c.digest == bindparam("digest"),
        ticket.c.fidelity == bindparam("fidelity"),
    )
    .order_by(ticket.c.sequence)
)
_twin = ticket.alias("twin")
_REPEAT = (
    select(func.count())
    .select_from(ticket)
    .join(_twin, and_(_twin.c.run == ticket.c.run, _twin.c.instance == ticket.c.instance))
    .where(
        ticket.c.run == bindparam("run"),
        ticket.c.sequence == bindparam("sequence"),
        _twin.c.sequence < ticket.c.sequence,
        _twin.c.fidelity == ticket.c.fidelity,
    )
)
_JUDGE = (
    select(evaluation.c.device_class, evaluation.c.evaluator_version)
    .join(ticket, ticket.c.id == evaluation.c.ticket)
    .where(ticket.c.run == bindparam("run"))
    .order_by(ticket.c.sequence)
    .limit(1)
)
_NEWEST_JUDGED = (
    select(ticket.c.id)
    .join(evaluation, evaluation.c.ticket == ticket.c.id)
    .where(ticket.c.run == bindparam("run"))
    .order_by(ticket.c.sequence.desc())
    .limit(1)
)


def trials(connection: Connection, run_id: int, digest: str) -> list[Trial]:
    """Every instance of a program that the run asked for, in order."""
    return [
        Trial(
            assignment=programs.decode_assignment(row.assignment),
            fidelity=Fidelity(row.fidelity),
            status=None if row.status is None else Status(row.status),
            ratio=None if row.ratio is None else Ratio(row.ratio, row.ratio_low, row.ratio_high),
        )
        for row in connection.execute(_TRIALS, {"run": run_id, "digest": digest})
    ]


def seen(connection: Connection, run_id: int, instance_digest: str) -> bool:
    """Whether the run holds a proposal of the instance."""
    key = {"run": run_id, "digest": instance_digest}
    return bool(connection.execute(_SEEN, key).scalar_one())


def near_duplicate_of(connection: Connection, run_id: int, item: Program) -> str | None:
    """Another program of the run with the same normalised digest, by digest."""
    key = {
        "run": run_id,
        "normalised": normalised_digest(item.source),
        "digest": item.digest,
    }
    found: str | None = connection.execute(_TWIN, key).scalar()
    return found


def made_by(connection: Connection, run_id: int, operator: str) -> list[int]:
    """The sequence numbers of an operator's tickets, in order."""
    key = {"run": run_id, "operator": operator}
    return list(connection.execute(_MADE_BY, key).scalars())


def recorded(
    connection: Connection, run_id: int, instance_digest: str, fidelity: Fidelity, repeat: int
) -> Evaluation | None:
    """The run's own evaluation of an instance at a fidelity, after `repeat` earlier ones."""
    key = {"run": run_id, "digest": instance_digest, "fidelity": fidelity.value}
    found = connection.execute(_RECORDED, key).scalars().all()
    if not found:
        return None
    return evaluations.of_ticket(connection, found[min(repeat, len(found) - 1)])


def repeat(connection: Connection, run_id: int, sequence: int) -> int:
    """How many earlier tickets have the instance of this one, at its fidelity."""
    key = {"run": run_id, "sequence": sequence}
    count: int = connection.execute(_REPEAT, key).scalar_one()
    return count


def judge(connection: Connection, run_id: int) -> Judge:
    """Device class and evaluator version of the run's evaluations.

    Raises:
        UsageError: the run has none.
    """
    row = connection.execute(_JUDGE, {"run": run_id}).one_or_none()
    if row is None:
        raise UsageError("the run to replay holds no evaluation; name one that was evaluated")
    return Judge(row.device_class, row.evaluator_version)


def environment(connection: Connection, run_id: int) -> dict[str, str]:
    """Environment of the run's newest evaluation, with its device class; empty without one."""
    found: int | None = connection.execute(_NEWEST_JUDGED, {"run": run_id}).scalar()
    item = None if found is None else evaluations.of_ticket(connection, found, samples=False)
    return {} if item is None else {"device_class": item.device_class, **item.environment}
