"""A proxy before a PostgreSQL server that cuts a connection at its COMMIT, or is not ready yet."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

COMMIT = b"COMMIT\0"
_FIELDS = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
_STARTING = b"E" + (4 + len(_FIELDS)).to_bytes(4, "big") + _FIELDS


class CuttingProxy:
    """Listens on a socket in `folder`.

    `cut("before")` lets the next COMMIT not through; `cut("after")` lets it through, and not its
    answer. `refuse(n)` answers the next n connections as a server does that recovers from a crash.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.cuts = 0
        self._server = str(server / ".s.PGSQL.5432")
        self._when = ""
        self._refusals = 0
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """The server's URL by way of this proxy."""
        direct = quote(str(Path(self._server).parent), safe="")
        return url.replace(direct, quote(str(self._folder), safe=""))

    def cut(self, when: str) -> None:
        self._when = when

    def refuse(self, connections: int) -> None:
        self._refusals = connections

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusals:
                    self._refusals -= 1
                    client.recv(65536)
                    client.sendall(_STARTING)
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=_pour, args=(server, client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        when = ""
        with suppress(OSError):
            while data := client.recv(65536):
                when = self._when if COMMIT in data else ""
                if when:
                    self._when = ""
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)
                if when != "before":
                    server.sendall(data)
                if when:
                    break  # the server is left waiting: only what it is told ends its transaction
        if not when:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _pour(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
