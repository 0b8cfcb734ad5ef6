"""The MCP server over the standard streams of its process."""

import asyncio
import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from mcp.server import MCPServer

from evolve.serve.bodies import MAX_BODY

PIECE = 65_536


async def answer(server: MCPServer[Any]) -> None:
    """Answer until the client closes its end, sends an endless line, or this task is cancelled.

    The SDK reads in a thread that nothing can interrupt, so it is given a stream that can be ended.
    """
    reading, writing = socket.socketpair()
    threading.Thread(target=_copy, args=(0, writing), daemon=True).start()
    before, sys.stdin = sys.stdin, reading.makefile(encoding="utf-8")
    answering = asyncio.create_task(server.run_stdio_async())
    try:
        await asyncio.shield(answering)
    except asyncio.CancelledError:
        _end(writing)
        await answering
        raise
    finally:
        sys.stdin = before


def _copy(source: int, target: socket.socket) -> None:
    """Copy until the end, or until a line is longer than any message may be."""
    length = 0
    with suppress(OSError):  # the target was ended
        while (piece := os.read(source, PIECE)) and length <= MAX_BODY:
            newline = piece.rfind(b"\n")
            length = length + len(piece) if newline < 0 else len(piece) - newline - 1
            target.sendall(piece)
    _end(target)


def _end(stream: socket.socket) -> None:
    with suppress(OSError):  # it has been ended before
        stream.shutdown(socket.SHUT_WR)
