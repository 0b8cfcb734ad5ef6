"""Connections to a server, and how long a lost one is tried again."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
from sqlalchemy.exc import DBAPIError

from evolve.store.postgresql.explanations import is_collision, is_cut, refuses_login

PATIENCE_S = 60.0
"""So long a server may be away, as it is while it restarts, before a search gives up."""
SAID_AFTER_S = 1.0
"""A server that is away for less is not mentioned: one cut connection is soon replaced."""

_LOGGER = logging.getLogger(__name__)
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


class Patience:
    """Calls a function again while the server is away or takes it back; used by all threads.

    One line says that the server does not answer, and one that it does again.

    Args:
        location: how a person names the database.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._changing = threading.Lock()
        self._since: float | None = None  # time.time() of the first failure
        self._is_said = False

    def __call__(self, once: Callable[[], T]) -> T:
        """The result of `once`, which raises only if it surely changed nothing."""
        deadline = time.monotonic() + PATIENCE_S
        for pause in _pauses():
            try:
                result = once()
            except (psycopg.Error, DBAPIError) as error:
                is_away = is_cut(error) and not refuses_login(error)
                passes = is_away or is_collision(error)
                if not passes or time.monotonic() + pause > deadline:
                    raise
                if is_away:
                    self.note_absence()
            else:
                self._answers()
                return result
            time.sleep(pause)
        raise AssertionError("pauses do not end")

    def note_absence(self, *, say_now: bool = False) -> None:
        """The server did not answer a moment ago: say so, unless that was said or is too new."""
        with self._changing:
            now = time.time()
            if self._since is None:
                self._since = now
            is_new = now - self._since < SAID_AFTER_S
            if self._is_said or (is_new and not say_now):
                return
            self._is_said = True
            _LOGGER.warning(
                "%s: the server does not answer since %s; the work goes on when it answers again "
                "within %g s, nothing stored is lost",
                self._location,
                time.strftime("%H:%M:%S", time.localtime(self._since)),
                PATIENCE_S,
            )

    def _answers(self) -> None:
        if self._since is None:
            return
        with self._changing:
            if self._is_said and self._since is not None:
                away_s = time.time() - self._since
                _LOGGER.warning("%s: the server answers again after %.0f s", self._location, away_s)
            self._since, self._is_said = None, False


def _pauses() -> Iterator[float]:
    pause = 0.01
    while True:
        yield pause * random.uniform(0.5, 1.5)
        pause = min(2 * pause, 1.0)
