"""Tables. Facts are append-only rows; `run` counters and `archive_slot` are kept beside them.

A fact and the counter or slot that follows from it are written in one transaction, so that reading
the state of a run never needs a scan.
"""

from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
    text,
)

from evolve.store.database.dialect import WHOLE, WORDS, append_only

VERSION = 9
"""Stamped into every database; other numbers are refused when opening."""

APPLICATION_ID = 0x45564B31
"""Marks a file as a database of this project (`PRAGMA application_id`): "EVK1"."""


class Digest(TypeDecorator[str]):
    """A SHA-256 as hex in Python and as 32 bytes in the database, which halves the indexes."""

    impl = LargeBinary(32)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        return None if value is None else bytes.fromhex(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        return None if value is None else value.hex()


metadata = MetaData()


def _id() -> "Column[int]":
    return Column("id", WHOLE, primary_key=True)


def _reference(name: str, target: str, *, nullable: bool = False, **options: Any) -> "Column[int]":
    return Column(name, WHOLE, ForeignKey(f"{target}.id"), nullable=nullable, **options)


def _text(name: str, default: str | None = None) -> "Column[str]":
    return Column(name, WORDS, nullable=False, server_default=default)


def _count(name: str) -> "Column[int]":
    return Column(name, WHOLE, nullable=False, server_default="0")


def _amount(name: str) -> "Column[float]":
    return Column(name, Float, nullable=False, server_default="0")


def _interval(name: str, *, nullable: bool = False) -> "list[Column[float]]":
    return [Column(name + end, Float, nullable=nullable) for end in ("", "_low", "_high")]


blob = Table(
    "blob",
    metadata,
    _id(),
    Column("sha256", LargeBinary(32), nullable=False, unique=True),
    Column("codec", String, CheckConstraint("codec IN ('raw', 'zlib')"), nullable=False),
    Column("bytes", LargeBinary, nullable=False),
)

run = Table(
    "run",
    metadata,
    _id(),
    Column("name", WORDS, nullable=False, unique=True),
    _reference("task", "blob"),
    _text("config"),
    Column("seed", WHOLE, nullable=False),
    _text("baseline"),
    _text("state"),
    _text("reason", ""),
    _text("created"),
    _count("asked"),
    _count("proposals"),  # tunings left out
    _count("tunings"),  # tickets of operators that tune
    _count("evaluations"),
    _count("screens"),
    _amount("device_time_s"),
    _amount("active_s"),
    _count("calls"),
    # The charges of calls, and the most that those under way may come to.
    _count("tokens"),
    _count("tokens_reserved"),
    _amount("usd"),
    _amount("usd_reserved"),
    _count("unpriced"),  # charged calls of unknown cost: with one of them `usd` is unknown
    *_interval("best", nullable=True),
    _count("evaluations_at_best"),
    # upper bound of the ratio that the next improvement has to lie above entirely
    Column("best_to_beat", Float),
    # of the process that created it; "" in runs that are older than these columns
    _text("started_by", ""),
    _text("host", ""),
    _text("project", ""),
)

run_operator = Table(
    "run_operator",
    metadata,
    _reference("run", "run", primary_key=True),
    Column("operator", WORDS, primary_key=True),
    _count("proposals"),
    sqlite_with_rowid=False,
)

arm = Table(  # the choices of a scheduler, with the cost and the gain of each
    "arm",
    metadata,
    _reference("run", "run", primary_key=True),
    Column("method", WORDS, primary_key=True),  # "" where a run has but one
    Column("operator", WORDS, primary_key=True),
    Column("model", WORDS, primary_key=True),  # "" where no model was asked
    _count("told"),
    _count("tokens"),
    _amount("usd"),
    _count("unpriced_tokens"),
    _amount("device_time_s"),
    _amount("gain"),
    _amount("lead"),
    sqlite_with_rowid=False,
)

credit = Table(  # what a told child brought its arm, with all that is known of it by now
    "credit",
    metadata,
    _reference("ticket", "ticket", primary_key=True),
    # fitness of the parent and of the leader when it was told
    *_interval("parent"),
    *_interval("leader"),
    _amount("gain"),
    _amount("lead"),
)

lease = Table(
    "lease",
    metadata,
    _reference("run", "run", primary_key=True),
    _text("owner"),
    _text("host"),
    _text("machine"),
    Column("pid", WHOLE, nullable=False),
    Column("heartbeat", Float, nullable=False),
)

program = Table(
    "program",
    metadata,
    _id(),
    Column("digest", Digest, nullable=False, unique=True),
    Column("normalised", Digest, nullable=False, index=True),  # layout and values left out
    _reference("source", "blob"),
    _text("language"),
)

instance = Table(
    "instance",
    metadata,
    _id(),
    Column("digest", Digest, nullable=False, unique=True),
    _reference("program", "program", index=True),
    _text("assignment"),
)

ticket = Table(
    "ticket",
    metadata,
    _id(),
    _reference("run", "run"),
    Column("sequence", WHOLE, nullable=False),
    _text("operator"),
    _text("model", ""),  # the scheduler's choice; "" where no model was asked
    _text("method", ""),  # whose turn it was; "" where a run has but one
    _text("state"),
    _reference("instance", "instance", nullable=True),
    Column("fidelity", WORDS),
    _count("again"),  # 1: the instance was known, and is evaluated once more on purpose
    _count("tuning"),  # 1: an operator that tunes made it
    _count("tunings"),  # of the run up to this ticket, itself included
    _text("note", ""),
    _text("failure", ""),
    _count("attempts"),
    _amount("elapsed_s"),
)
Index("ticket_sequence", ticket.c.run, ticket.c.sequence, unique=True)
is_open = text("ticket.state != 'told'")
_open = text("state != 'told'")
Index(
    "ticket_open",
    ticket.c.run,
    ticket.c.sequence,
    sqlite_where=_open,
    postgresql_where=_open,
)
Index("ticket_instance", ticket.c.run, ticket.c.instance)
Index("ticket_operator", ticket.c.run, ticket.c.operator, ticket.c.sequence)

ticket_parent = Table(
    "ticket_parent",
    metadata,
    _reference("ticket", "ticket", primary_key=True),
    Column("role", WORDS, primary_key=True),  # selected (when asked) | used (by the proposal)
    Column("position", WHOLE, primary_key=True),
    _reference("program", "program"),
    sqlite_with_rowid=False,
)
Index("ticket_parent_program", ticket_parent.c.program, ticket_parent.c.ticket)

request = Table(
    "request",
    metadata,
    _id(),
    _reference("run", "run"),
    _reference("ticket", "ticket"),
    Column("round", WHOLE, nullable=False),
    _text("operator"),  # of the ticket, so that an operator's newest are found by an index
    _text("purpose"),
    Column("key", Digest, nullable=False),
    Column("sample", WHOLE, nullable=False),  # counts requests of a run with one key
    _text("model"),
    _text("parameters"),
    _text("memo"),
    Column("reading", WORDS),  # the operator's reading of the reply
    _count("revision"),  # texts of one round, from 0: an open one may be composed anew
    _count("judged"),  # evaluations and screens of the run when it was composed
    # Selected parents (digests) of a text that another one of its round stands for; NULL: it stands
    Column("replaced", WORDS),
    UniqueConstraint("ticket", "round", "revision"),
)
Index("request_key", request.c.run, request.c.key)
Index("request_purpose", request.c.run, request.c.operator, request.c.purpose, request.c.id)

request_message = Table(
    "request_message",
    metadata,
    _reference("request", "request", primary_key=True),
    Column("position", WHOLE, primary_key=True),
    _text("role"),
    _reference("content", "blob"),
    sqlite_with_rowid=False,
)

call = Table(
    "call",
    metadata,
    _id(),
    _reference("request", "request", index=True),
    _text("status"),
    Column("tokens_reserved", WHOLE, nullable=False),
    Column("usd_reserved", Float),
    Column("tokens", WHOLE),  # charged; NULL while the call is under way
    Column("usd", Float),  # charged; NULL also where the cost is unknown
    _text("model", ""),  # the endpoint's name of the model that answered
    _text("finish_reason", ""),
    _text("error", ""),
    Column("usage", WORDS),
    Column("cost_usd", Float),
    _amount("latency_s"),
    _count("attempts"),
    _amount("started_s"),  # the run's active time when the call was committed
    _reference("reply", "blob", nullable=True),
    _reference("reasoning", "blob", nullable=True),
    _reference("trace", "blob", nullable=True),
)
_pending = text("status = 'pending'")
Index("call_pending", call.c.id, sqlite_where=_pending, postgresql_where=_pending)

evaluation = Table(
    "evaluation",
    metadata,
    _id(),
    _reference("ticket", "ticket", unique=True),
    _reference("instance", "instance", index=True),
    _text("status"),
    Column("stage", WHOLE, nullable=False),
    _text("fidelity"),
    _text("task_revision"),
    _text("device_class"),
    _text("evaluator_version"),
    Column("custom", WHOLE),
    Column("suite", WHOLE),
    _text("cases"),
    _text("labels"),
    _text("descriptors"),
    _text("durations_s"),
    _amount("device_time_s"),
    _reference("feedback", "blob", nullable=True),
    _reference("environment", "blob", nullable=True),
    _reference("samples", "blob", nullable=True),
)

evaluation_ratio = Table(
    "evaluation_ratio",
    metadata,
    _reference("evaluation", "evaluation", primary_key=True),
    Column("baseline", WORDS, primary_key=True),
    *_interval("ratio"),
    sqlite_with_rowid=False,
)

archive_offer = Table(
    "archive_offer",
    metadata,
    _id(),
    _reference("run", "run"),
    _reference("ticket", "ticket", unique=True),
    _reference("program", "program"),
    _reference("instance", "instance"),
    *_interval("fitness"),
    Column("evaluations", WHOLE, nullable=False),  # that fitness pools; 0: the program is refuted
    _text("descriptors"),
    Column("sequence", WHOLE, nullable=False),
    _count("tunings"),  # of the run up to that ticket
    _text("operator"),
    _text("parents"),
    Column("status", WHOLE, nullable=False),
    Column("slot", WORDS),
    _reference("evicted", "program", nullable=True),
    _text("moves", "{}"),  # slot -> digest or null: what else changed
)
Index("archive_offer_order", archive_offer.c.run, archive_offer.c.id)
Index("archive_offer_program", archive_offer.c.run, archive_offer.c.program, archive_offer.c.id)

archive_slot = Table(
    "archive_slot",
    metadata,
    _reference("run", "run", primary_key=True),
    Column("slot", WORDS, primary_key=True),
    _reference("program", "program"),
    _reference("offer", "archive_offer"),
    sqlite_with_rowid=False,
)
Index("archive_slot_program", archive_slot.c.run, archive_slot.c.program)

visit = Table(  # what came of a program as a parent; evolve.core.elites.Visits says what is what
    "visit",
    metadata,
    _reference("run", "run", primary_key=True),
    _reference("program", "program", primary_key=True),
    _reference("parent", "program", nullable=True),  # the main one of the ticket that made it
    _count("asked"),
    _count("told"),
    _count("failed"),
    _count("subtree"),
    _count("scored"),
    _amount("value"),
    Column("best", Float),
    _count("stale"),
    Column("own", Float),  # fitness of the program as it was offered last; NULL: refuted
    _count("tuned"),  # 1: tickets of its own have measured it, so `best` is also about itself
    Column("top", Float),  # the higher of `own` and `best`
    sqlite_with_rowid=False,
)
Index("visit_top", visit.c.run, visit.c.parent, visit.c.top)

quota = Table(
    "quota",
    metadata,
    Column("kind", WORDS, primary_key=True),  # user | project
    Column("name", WORDS, primary_key=True),
    Column("usd", Float),
    Column("device_time_s", Float),
    _text("since", ""),
    sqlite_with_rowid=False,
)

charge = Table(  # device time of servers, which have no runs
    "charge",
    metadata,
    Column("day", WORDS, primary_key=True),  # ISO 8601, UTC
    Column("user", WORDS, primary_key=True),
    Column("project", WORDS, primary_key=True),
    _amount("device_time_s"),
    sqlite_with_rowid=False,
)

audit_log = Table(
    "audit_log",
    metadata,
    _id(),
    _text("time"),
    _text("user"),
    _text("host"),
    _text("action"),
    _text("run", ""),  # a name: the log outlives runs, and tells of more than runs
    _text("detail", ""),
)
Index("audit_log_run", audit_log.c.run, audit_log.c.id)
append_only(audit_log)

steering = Table(  # a person's changes of a search under way
    "steering",
    metadata,
    _id(),
    _reference("run", "run"),
    _text("time"),
    _text("user"),
    _text("kind"),
    _reference("value", "blob"),
    _count("due"),  # the first step that it may hold from
)
Index("steering_run", steering.c.run, steering.c.id)
append_only(steering)

steering_taken = Table(
    "steering_taken",
    metadata,
    _reference("steering", "steering", primary_key=True),
    Column("sequence", WHOLE, nullable=False),  # the first step that it holds from
)
append_only(steering_taken)

STATISTICS = {
    ("ticket", "ticket_sequence"): "1000000 100000 1",
    ("ticket", "ticket_instance"): "1000000 100000 2",
    ("ticket", "ticket_operator"): "1000000 100000 20000 1",
    ("ticket", "ticket_open"): "10 10 1",
    ("ticket_parent", "ticket_parent_program"): "2000000 10 1",
    ("request", "request_key"): "1000000 100000 1",
    ("request", "request_purpose"): "1000000 100000 20000 10000 1",
    ("call", "ix_call_request"): "1000000 1",
    ("archive_offer", "archive_offer_program"): "1000000 100000 2 1",
    ("archive_slot", "archive_slot_program"): "10000 10000 1",
    ("visit", "visit_top"): "1000000 100000 5 1",
    ("instance", "ix_instance_program"): "1000000 5",
    ("program", "ix_program_normalised"): "1000000 2",
}
"""What a long run looks like (rows, then rows per value of each index column), for the planner.

Without it SQLite takes the run for a column that narrows a search down well, and answers questions
about one program by walking the whole run.
"""
