"""The types of an ASGI application, and an answer in JSON."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def send_json(send: Send, status: int, answer: Any, *headers: tuple[bytes, bytes]) -> None:
    """Answer a request."""
    body = json.dumps(answer).encode()
    fixed = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start = {"type": "http.response.start", "status": status, "headers": [*fixed, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
