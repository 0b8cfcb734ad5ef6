"""What operators may ask about a run's past."""

from sqlalchemy import Connection, and_, bindparam, exists, select

from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Ratio
from evolve.core.protocols import Trial
from evolve.store import programs
from evolve.store.schema import evaluation, evaluation_ratio, instance, program, run, ticket

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
    .outerjoin(
        evaluation_ratio,
        and_(
            evaluation_ratio.c.evaluation == evaluation.c.id,
            evaluation_ratio.c.baseline == run.c.baseline,
        ),
    )
    .where(program.c.digest == bindparam("digest"))
    .order_by(ticket.c.sequence)
)
_SEEN = select(
    exists()
    .where(ticket.c.run == bindparam("run"))
    .where(ticket.c.instance == instance.c.id)
    .where(instance.c.digest == bindparam("digest"))
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
