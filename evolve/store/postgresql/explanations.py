"""Errors of a server explained to a person, and which of them pass by themselves."""

import psycopg
from sqlalchemy.exc import DBAPIError

from evolve.core.errors import StoreError, UsageError

# Of SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html
_SHUT_DOWN = ("57P01", "57P02", "57P03", "57P05")
_COLLISIONS = ("40001", "40P01")  # two were in each other's way, and this one was taken back
_STARTING_OR_STOPPING = tuple(
    f"the database system is {doing}"
    for doing in ("starting up", "shutting down", "in recovery mode", "not yet accepting")
)
_STANDBY = "the database system is not accepting connections"  # `hot_standby` is off
_NO_PASSWORD = ("authentication failed", "no password supplied")
_NO_ENTRY = (*_NO_PASSWORD, "pg_hba.conf", "does not exist")


def driver_error(error: BaseException) -> psycopg.Error | None:
    """The driver's part of an error, if it has one."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return cause if isinstance(cause, psycopg.Error) else None


def is_cut(error: BaseException) -> bool:
    """Whether the connection has ended, or none can be made at this moment."""
    cause = driver_error(error)
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return state.startswith("08") or state in _SHUT_DOWN
    return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)


def is_collision(error: BaseException) -> bool:
    """Whether the server has taken the transaction back, which may be repeated."""
    return getattr(driver_error(error), "sqlstate", None) in _COLLISIONS


def refuses_login(error: BaseException) -> bool:
    """Whether the server is there and does not let this user in, which waiting does not mend."""
    cause = driver_error(error)
    text = str(cause)
    return isinstance(cause, psycopg.OperationalError) and any(words in text for words in _NO_ENTRY)


def is_starting_or_stopping(error: BaseException) -> bool:
    """Whether the server is there, but takes no connections while it starts, recovers or stops.

    libpq gives no code for this. The text of the message decides, so it has to be in English.
    """
    text = str(driver_error(error))
    return any(words in text for words in _STARTING_OR_STOPPING)


def explain(location: str, error: Exception) -> Exception:
    """The error to raise in place of one; that itself if it is a fault of this program."""
    cause = driver_error(error)
    if cause is None:
        return error
    text, state = _one_line(cause), getattr(cause, "sqlstate", None) or ""
    if any(words in text for words in _NO_PASSWORD):
        return UsageError(
            f"{location}: the server refuses the login ({text}); put the password of this user "
            "into PGPASSWORD or ~/.pgpass"
        )
    if refuses_login(error):
        return UsageError(f"{location}: the server refuses the connection ({text}); check the URL")
    if _STANDBY in text:
        return StoreError(
            f"{location}: the server takes no connections ({text}); name the primary server"
        )
    if is_cut(error):
        return StoreError(
            f"{location}: no connection to the server ({text}); check that it runs and can be "
            "reached; `evolve resume` continues a search that this ended: everything stored so "
            "far is kept"
        )
    for start, remedy in _REMEDIES.items():
        if state.startswith(start):
            return StoreError(f"{location}: {text}; {remedy}")
    return error


_REMEDIES = {
    "3F000": "make the schema that the URL names first: CREATE SCHEMA NAME",
    "53100": "free some space on the server and resume, everything stored so far is kept",
    "53": "give the server more memory or connections and resume",
    "42501": "give this user the right to create tables and write them",
    "55P03": "another process holds it for more than 30 s; wait for it or stop it",
    "25006": "the server is read-only; name the primary server",
    "40": "other writers were in the way too often; resume",
}


def _one_line(cause: psycopg.Error) -> str:
    """The server's own words, without the place in a statement."""
    said = cause.diag.message_primary or str(cause).strip().rpartition("failed: ")[2] or "closed"
    return " ".join(said.split())
