"""Jobs of the service in one SQLite file: nothing of a job lives in memory only.

A job is `queued` until a server takes it under its lease, `running` until there is a verdict or the
lease is given back, and then `done` or `failed` for ever, unless its own client asks for it to be
renewed. Only the holder of the lease can end it, so that it is answered exactly once; the next
server queues the jobs of a dead one again.
"""

import fcntl
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolve.core.digest import canonical_json
from evolve.core.errors import StoreError, UsageError

SCHEMA_VERSION = 2
BUSY_TIMEOUT_S = 30.0
ENDED_SERVERS = "the server ended under it "
"""How the message begins of a job that was under way whenever a server ended."""

SCHEMA = """
CREATE TABLE tasks (
  revision TEXT PRIMARY KEY,
  task BLOB NOT NULL             -- compressed JSON
);
CREATE TABLE audits (
  revision TEXT NOT NULL,
  judge TEXT NOT NULL,           -- device class and evaluator version
  findings TEXT NOT NULL,
  PRIMARY KEY (revision, judge)
);
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,    -- the order of arrival
  id TEXT NOT NULL UNIQUE,
  digest TEXT NOT NULL,          -- of the submission: an id stands for one only
  key TEXT NOT NULL,             -- of the program and its rules: equal ones get equal verdicts
  revision TEXT NOT NULL REFERENCES tasks,
  request BLOB NOT NULL,         -- compressed JSON
  state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed')),
  submitted REAL NOT NULL,       -- Unix time in seconds, as all times here
  expires REAL NOT NULL,         -- when waiting in the queue becomes pointless
  not_before REAL NOT NULL,
  lease TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  started REAL,
  finished REAL,
  fault TEXT,
  message TEXT,
  cached INTEGER NOT NULL DEFAULT 0,
  rewards TEXT,
  verdict BLOB                   -- compressed JSON of an Evaluation
);
CREATE INDEX jobs_queued ON jobs (number) WHERE state = 'queued';
CREATE INDEX jobs_running ON jobs (lease) WHERE state = 'running';
CREATE INDEX jobs_known ON jobs (key) WHERE state = 'done';
CREATE INDEX jobs_finished ON jobs (finished) WHERE finished IS NOT NULL;
"""


class HeldElsewhere(UsageError):
    """Another server holds the file of jobs."""


class State(StrEnum):
    """The state of a job; the last two are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Fault(StrEnum):
    """Why a job has no verdict. Never the candidate's doing, and never worth a reward."""

    INFRA = "infra"  # the judge itself failed under it, again and again
    EXPIRED = "expired"  # it waited in the queue for longer than it was to
    TASK = "task"  # its task cannot be judged
    PIN = "pin"  # it asked for a judge that has been replaced since


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row; `request` and `verdict` are plain data."""

    number: int
    id: str
    digest: str
    key: str
    revision: str
    request: Mapping[str, Any]
    state: State
    submitted: float
    expires: float
    attempts: int
    started: float | None
    finished: float | None
    fault: Fault | None
    message: str
    cached: bool
    rewards: Mapping[str, float | None]
    verdict: Mapping[str, Any] | None

    @property
    def is_over(self) -> bool:
        return self.state in (State.DONE, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """The fate of a submission."""

    id: str
    digest: str
    key: str
    revision: str
    request: Mapping[str, Any]
    queue_s: float


class Jobs:
    """The file; one server at a time holds it.

    Args:
        path: created if it does not exist.

    Raises:
        UsageError: another server holds it, it is of another version, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(path)
        with ExitStack() as on_failure:
            on_failure.callback(os.close, self._lock)
            self._db = _open(path)
            on_failure.pop_all()

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """All of the block or nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path}: {error}") from error
        finally:
            if self._db.in_transaction:
                with suppress(sqlite3.Error):  # of a disk that fails; the next BEGIN would say so
                    self._db.execute("ROLLBACK")

    def _read(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path}: {error}") from error

    def add(self, jobs: Sequence[NewJob], tasks: Mapping[str, Mapping[str, Any]]) -> None:
        """Queue jobs that the file does not hold yet, all or none.

        Args:
            jobs: the new ones.
            tasks: their tasks as plain data, by revision.
        """
        now = time.time()
        with self._write() as db:
            db.executemany(
                "INSERT OR IGNORE INTO tasks VALUES (?, ?)",
                [(revision, _pack(task)) for revision, task in tasks.items()],
            )
            db.executemany(
                "INSERT INTO jobs (id, digest, key, revision, request, state, submitted, expires,"
                " not_before) VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?)",
                [
                    (
                        *(job.id, job.digest, job.key, job.revision, _pack(job.request)),
                        *(now, now + job.queue_s, now),
                    )
                    for job in jobs
                ],
            )

    def get(self, ids: Sequence[str]) -> dict[str, Job]:
        """The jobs of these ids that there are."""
        marks = ",".join("?" * len(ids))
        rows = self._read(f"SELECT {_COLUMNS} FROM jobs WHERE id IN ({marks})", tuple(ids))
        return {job.id: job for job in map(_job, rows)}

    def are_open(self, ids: Sequence[str]) -> bool:
        """Whether there are jobs of all these ids, and none of them is over."""
        marks = ",".join("?" * len(ids))
        [(count,)] = self._read(
            f"SELECT count(*) FROM jobs WHERE finished IS NULL AND id IN ({marks})", tuple(ids)
        )
        return bool(count == len({*ids}))

    def task(self, revision: str) -> dict[str, Any]:
        """A task as plain data."""
        [(blob,)] = self._read("SELECT task FROM tasks WHERE revision = ?", (revision,))
        task: dict[str, Any] = _unpack(blob)
        return task

    def known(self, key: str) -> Mapping[str, Any] | None:
        """The verdict of a finished job with the same key, newest first."""
        rows = self._read(
            "SELECT verdict FROM jobs WHERE state = 'done' AND key = ?"
            " ORDER BY number DESC LIMIT 1",
            (key,),
        )
        return _unpack(rows[0][0]) if rows else None

    def claim(self, lease: str) -> Job | None:
        """Take the oldest job that may be started; None if there is none."""
        now = time.time()
        with self._write() as db:
            row = db.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE state = 'queued' AND not_before <= ?"
                " ORDER BY number LIMIT 1",
                (now,),
            ).fetchone()
            if row is None:
                return None
            job = _job(row)
            db.execute(
                "UPDATE jobs SET state = 'running', lease = ?, attempts = attempts + 1,"
                " started = ? WHERE number = ?",
                (lease, now, job.number),
            )
        return job

    def give_back(self, job: Job, lease: str, wait_s: float) -> None:
        """Queue a job again that has no verdict; its place in the queue stays."""
        with self._write() as db:
            db.execute(
                "UPDATE jobs SET state = 'queued', lease = NULL, not_before = ?, expires = expires"
                " + ? - started WHERE number = ? AND lease = ?",
                (time.time() + wait_s, time.time(), job.number, lease),
            )

    def release(self, lease: str) -> None:
        """Queue again the jobs under a lease whose server stops: that counts as no attempt."""
        now = time.time()
        with self._write() as db:
            db.execute(
                "UPDATE jobs SET state = 'queued', lease = NULL, not_before = 0, attempts ="
                " attempts - 1, expires = expires + ? - started"
                " WHERE state = 'running' AND lease = ?",
                (now, lease),
            )

    def renew(self, job: Job, queue_s: float) -> None:
        """Queue a job again that is over: its outcome is gone, its attempts are counted on.

        A verdict that is known does not answer it then.
        """
        now = time.time()
        request = _pack({**job.request, "fresh": True})
        with self._write() as db:
            db.execute(
                "UPDATE jobs SET state = 'queued', request = ?, expires = ?, not_before = ?,"
                " started = NULL, finished = NULL, fault = NULL, message = NULL, cached = 0,"
                " rewards = NULL, verdict = NULL WHERE number = ? AND finished IS NOT NULL",
                (request, now + queue_s, now, job.number),
            )

    def finish(
        self,
        job: Job,
        lease: str | None,
        *,
        verdict: Mapping[str, Any] | None = None,
        rewards: Mapping[str, float | None] | None = None,
        fault: Fault | None = None,
        message: str = "",
        cached: bool = False,
    ) -> bool:
        """End a job with a verdict or a fault; False if the lease is not held any more.

        Args:
            job: the job.
            lease: under which it runs; None for one that is still queued.
            verdict: an evaluation as plain data.
            rewards: requested ones, by name.
            fault: why there is no verdict.
            message: the fault in words.
            cached: whether the verdict is that of an earlier job.
        """
        state = State.DONE if fault is None else State.FAILED
        with self._write() as db:
            ended = db.execute(
                "UPDATE jobs SET state = ?, lease = NULL, finished = ?, fault = ?, message = ?,"
                " cached = ?, rewards = ?, verdict = ? WHERE number = ? AND finished IS NULL"
                " AND lease IS ?",
                (
                    *(state, time.time(), fault, message, cached),
                    None if rewards is None else canonical_json(dict(rewards)),
                    None if verdict is None else _pack(verdict),
                    *(job.number, lease),
                ),
            ).rowcount
        return ended == 1

    def recover(self, attempts: int) -> int:
        """Queue the running jobs of a dead server again; returns their number.

        A job that was started `attempts` times may crash servers, and is given up.
        """
        now = time.time()
        with self._write() as db:
            db.execute(
                "UPDATE jobs SET state = 'failed', lease = NULL, finished = ?, fault = 'infra',"
                " message = ? || attempts || ' times' WHERE state = 'running' AND attempts >= ?",
                (now, ENDED_SERVERS, attempts),
            )
            return db.execute(
                "UPDATE jobs SET state = 'queued', lease = NULL, not_before = 0,"
                " expires = expires + ? - started WHERE state = 'running'",
                (now,),
            ).rowcount

    def expire(self) -> list[str]:
        """End the jobs that have waited for too long; their ids."""
        now = time.time()
        with self._write() as db:
            rows = db.execute(
                "UPDATE jobs SET state = 'failed', finished = ?, fault = 'expired', message ="
                " 'it waited in the queue for ' || CAST(? - submitted AS INTEGER) || ' s'"
                " WHERE state = 'queued' AND expires <= ? RETURNING id",
                (now, now, now),
            ).fetchall()
        return [id_ for (id_,) in rows]

    def forget(self, keep_s: float) -> None:
        """Delete jobs that ended so long ago, and tasks that no job is of any more."""
        with self._write() as db:
            gone = db.execute(
                "DELETE FROM jobs WHERE finished < ?", (time.time() - keep_s,)
            ).rowcount
            if gone:
                db.execute("DELETE FROM tasks WHERE revision NOT IN (SELECT revision FROM jobs)")

    def count(self, state: State) -> int:
        """How many jobs are `queued` or `running`."""
        sql = "SELECT count(*) FROM jobs WHERE state = 'queued'"
        if state is State.RUNNING:  # spelled out, so that the partial indices serve
            sql = "SELECT count(*) FROM jobs WHERE state = 'running'"
        return int(self._read(sql)[0][0])

    def ahead(self, job: Job) -> int:
        """How many jobs wait before this one."""
        sql = "SELECT count(*) FROM jobs WHERE state = 'queued' AND number < ?"
        return int(self._read(sql, (job.number,))[0][0])

    def audit(self, revision: str, judge: str) -> Any | None:
        """The findings of the task's audit, if there was one."""
        rows = self._read(
            "SELECT findings FROM audits WHERE revision = ? AND judge = ?", (revision, judge)
        )
        return json.loads(rows[0][0]) if rows else None

    def keep_audit(self, revision: str, judge: str, findings: Any) -> None:
        with self._write() as db:
            db.execute(
                "INSERT OR REPLACE INTO audits VALUES (?, ?, ?)",
                (revision, judge, json.dumps(findings)),
            )


_NAMES = (
    *("number", "id", "digest", "key", "revision", "request", "state", "submitted", "expires"),
    *("attempts", "started", "finished", "fault", "message", "cached", "rewards", "verdict"),
)
_COLUMNS = ", ".join(_NAMES)


def _job(row: Sequence[Any]) -> Job:
    fields = dict(zip(_NAMES, row, strict=True))
    return Job(
        **fields
        | {
            "request": _unpack(fields["request"]),
            "state": State(fields["state"]),
            "fault": None if fields["fault"] is None else Fault(fields["fault"]),
            "message": fields["message"] or "",
            "cached": bool(fields["cached"]),
            "rewards": json.loads(fields["rewards"] or "{}"),
            "verdict": None if fields["verdict"] is None else _unpack(fields["verdict"]),
        }
    )


def _pack(data: Mapping[str, Any]) -> bytes:
    return zlib.compress(canonical_json(dict(data)).encode(), 1)


def _unpack(blob: bytes) -> Any:
    return json.loads(zlib.decompress(blob))


def _hold(path: Path) -> int:
    """A descriptor that keeps other servers off the file for as long as this process lives."""
    lock = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(
            f"jobs={path}: {error.strerror}; name a place that can be written"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise HeldElsewhere(
            f"jobs={path}: another server holds this file; stop that one, or name another file"
        ) from None
    return descriptor


def _open(path: Path) -> sqlite3.Connection:
    """The file, made if it is new; readable by its owner only, since it holds sources."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA_VERSION) or (version == 0 and _has_tables(db)):
            raise UsageError(
                f"jobs={path}: this is no file of jobs of version {SCHEMA_VERSION}; name another"
            )
        if version == 0:
            db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    except sqlite3.DatabaseError as error:
        with suppress(sqlite3.Error):
            db.close()
        raise UsageError(f"jobs={path}: {error}; name another file") from error
    return db


def _has_tables(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
