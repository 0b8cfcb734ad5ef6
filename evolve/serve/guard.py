"""Checks before every request: permission, origin and size."""

import base64
import binascii
import hmac
from collections.abc import Collection, MutableMapping
from typing import Any

from evolve.serve.asgi import App, Receive, Scope, Send, send_json
from evolve.serve.bodies import Bodies, BodyRefused, require_length


class Guard:
    """An ASGI layer that lets through only permitted requests.

    Args:
        app: the guarded application.
        token: required of requests, as a bearer token or as the password of basic authorisation
            (which an URL can carry: `http://any:TOKEN@host:port`); None for nothing.
        hosts: names that the `Host` header may have, so that a web page cannot reach a server
            without a token through a name of its own (DNS rebinding); empty for any.
        open_paths: paths that need no token.
    """

    def __init__(
        self, app: App, *, token: str | None, hosts: Collection[str], open_paths: Collection[str]
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(hosts)
        self._open = frozenset(open_paths)
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if not self._is_known_host(headers.get(b"host", b"")):
            await _refuse(send, 403, "Host: this server is asked by its own address only")
        elif not self._may(scope["path"], headers.get(b"authorization", b"")):
            await _refuse(
                send,
                401,
                "Authorization: send the server's token, as `Bearer TOKEN`",
                (b"www-authenticate", b"Bearer"),
            )
        else:
            await self._pass_on(scope, receive, send, _length(headers))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, length: int) -> None:
        """Read the body, which may be longer than it says, before anything works on it."""
        try:
            require_length(length)
            body = await self._bodies.read(receive)
        except BodyRefused as error:
            await _refuse(send, error.status, str(error))
            return
        if body is None:
            return
        whole: MutableMapping[str, Any] | None = {"type": "http.request", "body": body}

        async def replay() -> MutableMapping[str, Any]:
            nonlocal whole
            message, whole = whole, None
            return await receive() if message is None else message

        del body  # the application alone decides how long it is kept
        await self._app(scope, replay, send)

    def _is_known_host(self, host: bytes) -> bool:
        name = host.decode("latin-1").rpartition("@")[2].lower()
        bare = name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name
        return not self._hosts or bare.partition(":")[0] in self._hosts or bare in self._hosts

    def _may(self, path: str, authorization: bytes) -> bool:
        if self._token is None or path in self._open:
            return True
        return hmac.compare_digest(_shown(authorization), self._token)


def _shown(authorization: bytes) -> bytes:
    """The token in an `Authorization` header; empty if there is none."""
    scheme, _, rest = authorization.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _length(headers: dict[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() else 0


async def _refuse(send: Send, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
    await send_json(send, status, {"detail": detail}, *headers)
