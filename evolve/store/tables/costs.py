"""Costs of runs, for accounts: by run, operator and model.

A replay spends nothing: calls that were never sent (`ModelReply.attempts`) and recorded verdicts
are left out.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, cast, func, literal_column, or_, select

from evolve.core.model import BY_HAND, CallStatus
from evolve.core.records import Cost
from evolve.store.database.dialect import WHOLE, json_text, total
from evolve.store.database.schema import call, evaluation, request, run, ticket
from evolve.store.tables.calls import ANSWERED_BY

_pending = call.c.status == CallStatus.PENDING.value
_unknown = call.c.status == CallStatus.UNKNOWN.value
_judged = func.coalesce(json_text(run.c.config, "device", "kind"), "") != "replay"
_asked = func.coalesce(json_text(run.c.config, "llm", "kind"), "") != "replay"
_sent = case((or_(_pending, _unknown), _asked), else_=call.c.attempts > 0)
_charged = func.coalesce(call.c.tokens, call.c.tokens_reserved)
_is_priced = case((_pending, call.c.usd_reserved.is_not(None)), else_=call.c.usd.is_not(None))
_prompt = cast(json_text(call.c.usage, "prompt"), WHOLE)
_completion = cast(json_text(call.c.usage, "completion"), WHOLE)


def _count(condition: Any) -> Any:
    """Not the sum of the condition, which SQLAlchemy would read back as a truth value."""
    return func.count(case((condition, 1)))


_CALLS = (
    select(
        run.c.name.label("run"),
        request.c.operator,
        ANSWERED_BY.label("model"),
        func.count().label("calls"),
        _count(_unknown).label("unknown"),
        _count(~_is_priced).label("unpriced"),
        total(_charged).label("tokens"),
        total(_prompt).label("prompt_tokens"),
        total(_completion).label("completion_tokens"),
        total(case((_pending, call.c.usd_reserved), else_=call.c.usd)).label("usd"),
    )
    .join(request, request.c.id == call.c.request)
    .join(run, run.c.id == request.c.run)
    .where(call.c.status != CallStatus.UNAVAILABLE.value, _sent)
    .group_by(run.c.id, request.c.operator, ANSWERED_BY)
)
_answered_by = (
    select(ANSWERED_BY)
    .join(request, request.c.id == call.c.request)
    .where(request.c.ticket == ticket.c.id)
    .order_by(call.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_by_hand = ticket.c.model == literal_column(f"'{BY_HAND}'")
_maker = case((_by_hand, func.coalesce(_answered_by, ticket.c.model)), else_=ticket.c.model)
_DEVICE = (
    select(
        run.c.name.label("run"),
        ticket.c.operator,
        _maker.label("model"),
        func.count().label("evaluations"),
        total(evaluation.c.device_time_s).label("device_time_s"),
    )
    .join(evaluation, evaluation.c.ticket == ticket.c.id)
    .join(run, run.c.id == ticket.c.run)
    .where(_judged)
    .group_by(run.c.id, ticket.c.operator, _maker)
)
_TOKENS = (
    select(ticket.c.sequence, total(_charged))
    .join(request, request.c.id == call.c.request)
    .join(ticket, ticket.c.id == request.c.ticket)
    .where(ticket.c.run == bindparam("run"), call.c.status != CallStatus.UNAVAILABLE.value)
    .group_by(ticket.c.sequence)
)
_NOTHING = dict.fromkeys(
    ("calls", "unknown", "unpriced", "tokens", "prompt_tokens", "completion_tokens"), 0
) | {"usd": 0.0, "evaluations": 0, "device_time_s": 0.0}


def everything(connection: Connection, run_id: int | None) -> list[Cost]:
    """Every combination of run, operator and model that has cost anything; or those of one run."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for rows in (_rows(connection, _CALLS, run_id), _rows(connection, _DEVICE, run_id)):
        for row in rows:
            key = (row.run, row.operator, row.model)
            sums = row._asdict()
            for name in ("run", "operator", "model"):
                del sums[name]
            found[key] = found.get(key, _NOTHING) | sums
    return [
        Cost(run=name, operator=operator, model=model, **sums)
        for (name, operator, model), sums in sorted(found.items())
    ]


def tokens(connection: Connection, run_id: int) -> dict[int, int]:
    """The charges for the calls of each step of a run, by sequence number."""
    return {
        sequence: int(total) for sequence, total in connection.execute(_TOKENS, {"run": run_id})
    }


def _rows(connection: Connection, query: Any, run_id: int | None) -> Sequence[Row[Any]]:
    return connection.execute(query if run_id is None else query.where(run.c.id == run_id)).all()
