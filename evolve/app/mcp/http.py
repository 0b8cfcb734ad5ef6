"""The MCP server over streamable HTTP, behind the checks of all servers of this project."""

import asyncio
import socket
from collections.abc import Collection
from typing import Any

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from evolve.serve.bodies import MAX_BODY
from evolve.serve.guard import Guard
from evolve.serve.http import serving

ENDPOINT = "/mcp"  # path of the URL


async def serve(
    server: MCPServer[Any],
    listener: socket.socket,
    *,
    token: str | None,
    hosts: Collection[str],
) -> None:
    """Answer until cancelled.

    Without sessions: a client that is killed leaves nothing behind, and one that comes back, or a
    server that was started again, goes on by tickets.

    Args:
        server: with its tools.
        listener: a listening socket.
        token: required in requests; None if all may ask.
        hosts: names by which the server may be asked; empty for any.
    """
    app = server.streamable_http_app(
        streamable_http_path=ENDPOINT,
        stateless_http=True,
        json_response=True,
        max_request_body_size=MAX_BODY,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    guarded = Guard(app, token=token, hosts=hosts, open_paths=())  # checks hosts too
    async with server.session_manager.run(), serving(guarded, listener) as answering:
        await asyncio.wait({answering})
    await answering
