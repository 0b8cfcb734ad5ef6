"""The URL of a server, and the part of it that is shown."""

import re
from typing import Any

from evolve.core.errors import UsageError
from evolve.store.location import SCHEME

_PASSWORD = re.compile(r"(?<=://)(?P<user>[^/@?#]*?):(?P<password>[^/?#\s]*)@|[?&]password=[^&\s]*")


def shown(text: str) -> str:
    """A URL, or a text with some, without the passwords that they may hold."""
    return _PASSWORD.sub(lambda found: f"{found['user']}@" if found["user"] else "", text)


def checked(url: str) -> str:
    """The URL as libpq reads it.

    Raises:
        UsageError: it holds a password, which lists of processes and stored configurations would
            show, or is no URL; the message does not repeat the password.
    """
    plain = SCHEME.sub("postgresql://", url, count=1)
    try:
        parts = _parts(plain)
    except ValueError as error:
        raise UsageError(
            f"{shown(url)} is no URL of a PostgreSQL server ({shown(str(error)).strip()}); write "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    if parts.get("password"):
        raise UsageError(
            f"{shown(url)}: a password in the URL would be seen by others; take it out, and put it "
            "into PGPASSWORD or ~/.pgpass"
        )
    return plain


def _parts(url: str) -> dict[str, Any]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return dict(conninfo_to_dict(url))
    except ProgrammingError as error:
        raise ValueError(str(error)) from None
