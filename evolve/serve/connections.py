"""Connections of clients: how many there may be, and how long one may keep the server waiting.

uvicorn has no deadline for headers or bodies, and its limit of connections refuses those that come
last. Here the one that has kept the server waiting for longest makes room.
"""

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 2048
OWN_FILES = 400  # that the server itself needs, with connections accepted before one is closed
REQUEST_S = 75.0  # for a whole request, and for the client to go on reading an answer


class Connection(H11Protocol):
    """A connection with a deadline while the client owes something.

    It owes the rest of a request, or has to read its answer before more of it can be sent. While a
    request is being worked on, it owes nothing.

    Args:
        most: how many connections there may be.
        owing: those that owe something, the longest first.
        server: the argument that uvicorn gives its protocols.
    """

    def __init__(self, most: int, owing: "dict[Connection, None]", **server: Any) -> None:
        super().__init__(**server)
        self._most = most
        self._owing = owing
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()
        self._look()
        if len(self.connections) > self._most:
            next(iter(self._owing)).end()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._settle()

    def data_received(self, data: bytes) -> None:
        self._expect()
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def end(self) -> None:
        """Close it, even with data left to send; it is no longer counted as owing."""
        self._settle()
        self.transport.abort()

    def _expect(self) -> None:
        """Begin to wait; before the next request on this connection, uvicorn has its own limit."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self.end)

    def _look(self) -> None:
        """See whether the client owes anything."""
        if self.flow.write_paused or self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._owing.setdefault(self)
        else:
            self._settle()

    def _settle(self) -> None:
        self._owing.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def most_connections() -> int:
    """How many connections this process can hold, once its limit of open files is raised."""
    wanted = MAX_CONNECTIONS + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    have, can_have = (wanted if n == resource.RLIM_INFINITY else n for n in (soft, hard))
    if have < min(wanted, can_have):
        have = min(wanted, can_have)
        resource.setrlimit(resource.RLIMIT_NOFILE, (have, hard))
    return max(min(wanted, have) - OWN_FILES, 64)
