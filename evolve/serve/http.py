"""The application on a socket, for as long as the service runs."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial

import uvicorn

from evolve.core.errors import UsageError
from evolve.serve.asgi import App
from evolve.serve.connections import Connection, most_connections
from evolve.serve.service import Service

BACKLOG = 2048
ACCEPTED_AT_ONCE = 128  # before those that are too many are closed
KEEP_ALIVE_S = 75  # a client that pauses between steps finds its connection again
LAST_ANSWERS_S = 5  # for requests under way when the server is stopped


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio takes one number for this and for accepts

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the command line's: it cancels, and everything ends in order."""
        yield


@contextlib.contextmanager
def listen(host: str, port: int, words: str = "") -> Iterator[socket.socket]:
    """A listening socket.

    Args:
        host: the interface.
        port: the port; 0 for one that is free.
        words: the settings that say so, for messages.

    Raises:
        UsageError: the address is taken, or not this machine's.
    """
    words = words or f"host={host} port={port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named since asyncio turns delays off (TCP_NODELAY) only if it is; with them
    # every answer takes 40 ms longer.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OverflowError as error:
            raise UsageError(
                f"{words}: {port} is no port; name one from 1 to 65535, or 0 for one that is free"
            ) from error
        except OSError as error:
            is_of_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            remedy = (
                "name an address of this machine, such as 127.0.0.1"
                if is_of_host
                else "name another port, or 0 for one that is free"
            )
            raise UsageError(f"{words}: {error.strerror or error}; {remedy}") from error
        yield listener


def url_of(listener: socket.socket) -> str:
    """The URL at which a listening socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: App, listener: socket.socket) -> AsyncIterator["asyncio.Task[None]"]:
    """Within this block requests are answered, by a task that ends otherwise only if it fails."""
    config = uvicorn.Config(
        app,
        http=partial(Connection, most_connections(), {}),  # type: ignore[arg-type]
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="error",  # a warning for each malformed request would fill the disk
        access_log=False,  # nothing that a client sends is written anywhere but into the jobs
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield task
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)


async def run(app: App, listener: socket.socket, service: Service) -> None:
    """Answer requests and judge jobs until cancelled, or until either fails."""
    async with serving(app, listener) as answering:
        judging = asyncio.create_task(service.run())
        try:
            await asyncio.wait({answering, judging}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            judging.cancel()
            await asyncio.gather(judging, return_exceptions=True)
    ended = await asyncio.gather(answering, judging, return_exceptions=True)
    for error in ended:
        if isinstance(error, ExceptionGroup):
            raise error.exceptions[0]
        if isinstance(error, Exception):
            raise error
