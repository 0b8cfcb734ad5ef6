"""Runs: creating and finding them, and the counters that budgets are decided on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, case, insert, select, update

from evolve.core.compiled import Compiled
from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import NO_PROPOSALS
from evolve.core.measurement import Ratio
from evolve.core.model import Reservation
from evolve.core.protocols import Progress
from evolve.core.records import RunRow
from evolve.core.task import Task
from evolve.store.database import blobs, lease, schema
from evolve.store.database.dialect import upsert
from evolve.store.database.schema import blob, run, run_operator
from evolve.store.database.user import current_host, current_user
from evolve.store.tables import audit_log

_holder = schema.lease
_ROWS: Select[Any] = (
    select(run, blob.c.codec, blob.c.bytes, _holder.c.machine, _holder.c.pid, _holder.c.heartbeat)
    .join(blob, blob.c.id == run.c.task)
    .outerjoin(_holder, _holder.c.run == run.c.id)
)
_RUN = select(run).where(run.c.id == bindparam("run"))
_THIS = update(run).where(run.c.id == bindparam("counted"))
_ASKED = (
    _THIS.where(lease.is_ours(run.c.id))
    .values(
        asked=run.c.asked + 1,
        proposals=run.c.proposals + bindparam("proposed"),
        tunings=run.c.tunings + bindparam("tuning"),
    )
    .returning(run.c.asked, run.c.tunings)
)
_PROPOSED = _THIS.values(proposals=run.c.proposals + bindparam("proposed"))
_ACTIVE = _THIS.values(active_s=run.c.active_s + bindparam("seconds"))
_EVALUATED = _THIS.values(
    evaluations=run.c.evaluations + bindparam("whole"),
    screens=run.c.screens + bindparam("screen"),
    device_time_s=run.c.device_time_s + bindparam("seconds"),
).returning(run.c.baseline, run.c.evaluations, run.c.best, run.c.best_low, run.c.best_to_beat)
_BEST = _THIS.values(
    best=bindparam("value"), best_low=bindparam("low"), best_high=bindparam("high")
)
_LEAP = _THIS.values(evaluations_at_best=bindparam("now"), best_to_beat=bindparam("high"))
_RESERVE = _THIS.values(
    calls=run.c.calls + 1,
    tokens_reserved=run.c.tokens_reserved + bindparam("worst_tokens"),
    usd_reserved=run.c.usd_reserved + bindparam("worst_usd"),
)
_SETTLE = _THIS.values(
    calls=run.c.calls - bindparam("refused"),
    tokens_reserved=run.c.tokens_reserved - bindparam("worst_tokens"),
    usd_reserved=case(  # sums of floats do not come back to nothing by themselves
        (run.c.tokens_reserved <= bindparam("worst_tokens"), 0.0),
        else_=run.c.usd_reserved - bindparam("worst_usd"),
    ),
    tokens=run.c.tokens + bindparam("charged_tokens"),
    usd=run.c.usd + bindparam("charged_usd"),
    unpriced=run.c.unpriced + bindparam("unknown"),
)
_OPERATOR = upsert(run_operator).values(proposals=1)
_OPERATOR = _OPERATOR.on_conflict_do_update(
    index_elements=[run_operator.c.run, run_operator.c.operator],
    set_={"proposals": run_operator.c.proposals + 1},
)


def create(
    connection: Connection, *, name: str, task: Task, config: Mapping[str, Any], seed: int
) -> RunRow:
    """Add a run.

    Raises:
        UsageError: a run of this name exists.
    """
    if not name:
        raise UsageError("name is empty; give the run a name")
    check_seed(seed)
    if connection.execute(select(run.c.id).where(run.c.name == name)).first():
        raise UsageError(
            f"name={name}: this run exists already; continue it with on_exists=resume, "
            "or start another beside it with on_exists=new"
        )
    row = {
        "name": name,
        "task": blobs.put(connection, canonical_json(task.to_json())),
        "config": canonical_json(dict(config)),
        "seed": seed,
        "baseline": str(config.get("baseline", "eager")),
        "state": "running",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "started_by": current_user(),
        "host": current_host(),
        "project": str(config.get("project") or ""),
    }
    connection.execute(insert(run), row)
    audit_log.add(connection, "started", name, f"project {row['project']}" * bool(row["project"]))
    return find(connection, name)


def check_seed(seed: int) -> None:
    """Raise UsageError for a seed that the database cannot hold."""
    if not -(2**63) <= seed < 2**63:
        raise UsageError(f"seed={seed} does not fit into 64 bits; choose a smaller one")


def find(connection: Connection, name: str | None) -> RunRow:
    """A run by its name, or the newest.

    Raises:
        UsageError: there is no such run; the message lists those that exist.
    """
    query = _ROWS.order_by(run.c.id.desc()).limit(1)
    if name is not None:
        query = _ROWS.where(run.c.name == name)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UsageError(_no_run(connection, name))
    return _run_row(row)


def by_id(connection: Connection, run_id: int) -> RunRow:
    """A run by its number."""
    row_of(connection, run_id)
    return _run_row(connection.execute(_ROWS.where(run.c.id == run_id)).one())


def listing(connection: Connection) -> list[RunRow]:
    """All runs, oldest first."""
    return [_run_row(row) for row in connection.execute(_ROWS.order_by(run.c.id))]


def row_of(connection: Connection, run_id: int) -> Row[Any]:
    """The whole row with its counters."""
    row = connection.execute(_RUN, {"run": run_id}).one_or_none()
    if row is None:
        raise UsageError(_no_run(connection, f"number {run_id}"))
    return row


def beat(connection: Connection, run_id: int, owner: str, seconds: float) -> None:
    """Show that the process that continues the run lives, and count the seconds since."""
    lease.beat(connection, run_id, owner)
    connection.execute(_ACTIVE, {"counted": run_id, "seconds": seconds})


def leave(connection: Connection, run_id: int, owner: str, state: str, reason: str) -> None:
    """Record how the run stands, and why, and free it for others."""
    lease.beat(connection, run_id, owner)
    connection.execute(update(run).where(run.c.id == run_id).values(state=state, reason=reason))
    lease.give_up(connection, run_id, owner)


def reconfigure(connection: Connection, run_id: int, owner: str, config: Mapping[str, Any]) -> None:
    """Replace the configuration of a run."""
    lease.beat(connection, run_id, owner)
    text = canonical_json(dict(config))
    connection.execute(update(run).where(run.c.id == run_id).values(config=text))


def record_audit(
    connection: Connection, run_id: int, owner: str, findings: Sequence[Mapping[str, str]]
) -> None:
    """Keep the findings of the task's audit; the first answer stands."""
    _keep_first(connection, run_id, owner, "audit", [dict(finding) for finding in findings])


def record_reference(
    connection: Connection, run_id: int, owner: str, cost: Mapping[str, Any]
) -> None:
    """Keep the cost of the task's reference; the first answer stands."""
    _keep_first(connection, run_id, owner, "reference", dict(cost))


def _keep_first(connection: Connection, run_id: int, owner: str, name: str, value: Any) -> None:
    lease.fence_run(connection, run_id, owner)
    config = json.loads(row_of(connection, run_id).config)
    if config.get(name) is None:
        text = canonical_json({**config, name: value})
        connection.execute(update(run).where(run.c.id == run_id).values(config=text))


def record_compiled(
    connection: Connection, run_id: int, owner: str, compiled: Sequence[Compiled]
) -> None:
    """Keep the compiled reference of the task; the first answer stands."""
    lease.fence_run(connection, run_id, owner)
    task = by_id(connection, run_id).task
    if not task.compiled:
        text = canonical_json(replace(task, compiled=tuple(compiled)).to_json())
        values = {"task": blobs.put(connection, text)}
        connection.execute(update(run).where(run.c.id == run_id).values(values))


def progress(connection: Connection, run_id: int) -> Progress:
    """The counters of a run."""
    row = row_of(connection, run_id)
    return Progress(
        proposals=row.proposals,
        tunings=row.tunings,
        evaluations=row.evaluations,
        screens=row.screens,
        device_time_s=row.device_time_s,
        wall_time_s=row.active_s,
        calls=row.calls,
        tokens=row.tokens,
        tokens_reserved=row.tokens_reserved,
        usd=None if row.unpriced else row.usd,
        usd_reserved=row.usd_reserved,
        best=None if row.best is None else Ratio(row.best, row.best_low, row.best_high),
        evaluations_at_best=row.evaluations_at_best,
    )


def asked(connection: Connection, run_id: int) -> int:
    """How many tickets the run has: the sequence number of the next one."""
    count: int = connection.execute(select(run.c.asked).where(run.c.id == run_id)).scalar_one()
    return count


def next_sequence(
    connection: Connection,
    run_id: int,
    owner: str,
    *,
    proposed_by: str | None = None,
    tuning: bool = False,
) -> tuple[int, int]:
    """Take the next sequence number of the run; with it the number of tunings so far.

    Args:
        connection: of the transaction.
        run_id: the run.
        owner: the process that continues it.
        proposed_by: the operator whose proposal is counted with it, where it answered at once.
        tuning: whether the ticket is a tuning, which is no proposal of the run.

    Raises:
        StoreError: another process continues the run.
    """
    proposed = proposed_by is not None and not tuning and proposed_by not in NO_PROPOSALS
    key = {"counted": run_id, "holder": owner, "proposed": int(proposed), "tuning": int(tuning)}
    row = connection.execute(_ASKED, key).one_or_none()
    if row is None:
        lease.fence_run(connection, run_id, owner)
        raise UsageError(_no_run(connection, f"number {run_id}"))
    if proposed_by is not None:
        connection.execute(_OPERATOR, {"run": run_id, "operator": proposed_by})
    return row.asked - 1, row.tunings


def count_proposal(connection: Connection, run_id: int, operator: str, *, tuning: bool) -> None:
    """Count a proposal of an operator, a failure too; a tuning for its operator only."""
    connection.execute(_PROPOSED, {"counted": run_id, "proposed": int(not tuning)})
    connection.execute(_OPERATOR, {"run": run_id, "operator": operator})


def reserve(connection: Connection, run_id: int, worst: Reservation) -> None:
    """Count a call, and what it may come to at most."""
    amounts = {"worst_tokens": worst.tokens, "worst_usd": worst.usd or 0.0}
    connection.execute(_RESERVE, {"counted": run_id} | amounts)


def settle(
    connection: Connection,
    run_id: int,
    worst: Reservation,
    tokens: int,
    usd: float | None,
    *,
    refused: bool,
) -> None:
    """Take a reservation back and count the charge; USD None is an unknown cost.

    A refused call was not accepted, will be made again, and is counted then.
    """
    amounts = {
        "refused": int(refused),
        "worst_tokens": worst.tokens,
        "worst_usd": worst.usd or 0.0,
        "charged_tokens": tokens,
        "charged_usd": usd or 0.0,
        "unknown": int(usd is None),
    }
    connection.execute(_SETTLE, {"counted": run_id} | amounts)


def count_evaluation(connection: Connection, run_id: int, operator: str, item: Evaluation) -> None:
    """Count an evaluation, and keep it if it is the best of the run.

    Only what the search asked for counts as an evaluation: not the verification of its winner, not
    the judgement of the user's baseline, not what failed by our own fault. Device time always
    counts. The best is the strict ratio at full fidelity with the highest lower bound, which one
    lucky measurement does not raise. It has *improved* where its interval lies above
    that of the last improvement, so that creeping within the noise is stagnation.
    """
    searched = operator not in NO_PROPOSALS and item.status is not Status.INFRA
    whole = searched and item.fidelity is Fidelity.SEARCH
    screen = searched and item.fidelity is Fidelity.SCREEN
    counts = {"whole": int(whole), "screen": int(screen), "seconds": item.device_time_s}
    row = connection.execute(_EVALUATED, {"counted": run_id} | counts).one()
    ratio = item.ratios.get(row.baseline)
    if not (whole and item.strict and ratio):
        return
    bounds = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    if row.best is None or ratio.low > row.best_low:
        connection.execute(_BEST, {"counted": run_id} | bounds)
    if row.best_to_beat is None or ratio.low > row.best_to_beat:
        leap = {"now": row.evaluations, "high": ratio.high}
        connection.execute(_LEAP, {"counted": run_id} | leap)


def _run_row(row: Row[Any]) -> RunRow:
    state, reason = row.state, row.reason
    if state == "running" and row.pid is not None and lease.is_gone(row):
        state, reason = "interrupted", "its process is gone"
    return RunRow(
        id=row.id,
        name=row.name,
        task=Task.from_json(json.loads(blobs.decode(row.codec, row.bytes))),
        config=json.loads(row.config),
        seed=row.seed,
        state=state,
        reason=reason,
        created=row.created,
        user=row.started_by,
        host=row.host,
        project=row.project,
    )


def _no_run(connection: Connection, name: str | None) -> str:
    names = list(
        connection.execute(select(run.c.name).order_by(run.c.id.desc()).limit(11)).scalars()
    )
    if not names:
        return "the database holds no run yet; start one first"
    listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f"no run {name!r} in this database; it holds {listed}"
