"""Connections to a server, and how long a lost one is tried again."""

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
from sqlalchemy.exc import DBAPIError

from evolve.store.postgresql.explanations import is_collision, is_cut, refuses_login

PATIENCE_S = 60.0
"""So long a server may be away, as it is while it restarts, before a search gives up."""

_CONNECT_TIMEOUT_S = 10
# A host that is gone without a word is noticed, by both sides, within half a minute.
_SETTINGS = """
    SET lock_timeout = '30s';
    SET idle_in_transaction_session_timeout = '10min';
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SET jit = off
"""

T = TypeVar("T")


def connect(url: str, name: str, *, read_only: bool = False) -> "psycopg.Connection[tuple[object]]":
    """A connection whose transactions are begun by hand; the server lists it under `name`."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        application_name=name,
        connect_timeout=_CONNECT_TIMEOUT_S,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )
    connection.execute(_SETTINGS, prepare=False)
    if read_only:
        connection.execute("SET default_transaction_read_only = on")
    return connection


def patiently(once: Callable[[], T]) -> T:
    """The result of a function that is called again while the server is away or takes it back.

    `once` raises only if it surely changed nothing.
    """
    deadline = time.monotonic() + PATIENCE_S
    for pause in _pauses():
        try:
            return once()
        except (psycopg.Error, DBAPIError) as error:
            passes = is_collision(error) or (is_cut(error) and not refuses_login(error))
            if not passes or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
    raise AssertionError("pauses do not end")


def _pauses() -> Iterator[float]:
    pause = 0.01
    while True:
        yield pause * random.uniform(0.5, 1.5)
        pause = min(2 * pause, 1.0)
