"""Between LiteLLM and the network: replies with a wrong status or shape are put right.

LiteLLM reads replies as OpenAI documents them, and loses those that differ: content that is a list
of parts, an error with status 200, an error inside of a choice. It makes all its asynchronous
connections by one function; the transport that this function returns is wrapped here.
"""

import importlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from evolve.llm.bodies import error_of, loaded, message_of, status_of, with_plain_text

_TEXTS = ("content", "reasoning_content", "reasoning", "tool_calls")
_BROKEN_OFF = re.compile(r"error|abort|cancel|insufficient|timeout|context_window", re.IGNORECASE)
_MAX_EVENTS = 8  # before the first text, that are looked at for an error
_BODY_HEADERS = frozenset({"content-length", "content-encoding", "transfer-encoding"})


@dataclass(slots=True)
class Sending:
    """State of a request that is under way.

    `sent`: LiteLLM came as far as sending it. `failure`: the error that ended the answer, in the
    endpoint's words.
    """

    sent: bool = False
    failure: str = ""


sending: ContextVar[Sending] = ContextVar("sending")


def install() -> None:
    """Have LiteLLM's connections pass here. Those that it leaves to httpx stay as they are."""
    module: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    original = module.AsyncHTTPHandler.create_async_transport

    def create(*args: Any, **kwargs: Any) -> Any:
        transport = original(*args, **kwargs)
        return None if transport is None else _Transport(transport)

    module.AsyncHTTPHandler.create_async_transport = staticmethod(create)


class _Transport:
    """`httpx.AsyncBaseTransport` around another one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> "_Transport":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.__aexit__(*error)

    async def handle_async_request(self, request: Any) -> Any:
        return await _put_right(await self._inner.handle_async_request(request))

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _put_right(response: Any) -> Any:
    if response.status_code != HTTPStatus.OK:
        return response
    kind = response.headers.get("content-type", "")
    if "event-stream" in kind:
        return await _streamed(response)
    if "json" not in kind:
        return response
    text = await response.aread()
    await response.aclose()
    body = loaded(text.decode("utf-8", "replace"))
    if not isinstance(body, Mapping | list):
        return _response(response, HTTPStatus.OK, content=text)
    status, meant = as_meant(body)
    text = text if meant is body else json.dumps(meant).encode()
    return _response(response, status, content=text)


def _response(old: Any, status: int, **body: Any) -> Any:
    httpx: Any = importlib.import_module("httpx")
    headers = [(k, v) for k, v in old.headers.multi_items() if k.lower() not in _BODY_HEADERS]
    return httpx.Response(status, headers=headers, extensions=dict(old.extensions), **body)


def as_meant(body: Any) -> tuple[int, Any]:
    """The true status and body of a body with status 200; the body itself if all is well.

    An error without an answer gets its status. One beside an answer is noted in `sending`.
    """
    error = error_of(body)
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or not choices:
        return (HTTPStatus.OK if error is None else status_of(error)), body
    error = error or next(filter(None, map(_error_of_choice, choices)), None)
    if error is not None:
        if not has_text(body) and not _counted(body.get("usage")):
            return status_of(error), {"error": {"message": message_of(error)} | dict(error)}
        sending.get(Sending()).failure = message_of(error) or "the endpoint gave an error"
    plain = [_plain(choice) for choice in choices]
    if error is None and plain == choices:
        return HTTPStatus.OK, body
    rest = {name: value for name, value in body.items() if name != "error"}
    return HTTPStatus.OK, rest | {"choices": plain}


def _error_of_choice(choice: Any) -> Mapping[str, Any] | None:
    if not isinstance(choice, Mapping):
        return None
    finish = str(choice.get("finish_reason"))
    if _BROKEN_OFF.search(finish):  # LiteLLM makes a "stop" of words that it does not know
        return error_of(choice) or {"message": f"it ended with '{finish}'", "code": 502}
    return error_of(choice)


def has_text(body: Mapping[str, Any]) -> bool:
    """Whether a body, or an event of a stream, holds a part of an answer."""
    turns = (_turn(choice)[1] for choice in body["choices"])
    return any(turn.get(name) for turn in turns for name in _TEXTS)


def _counted(usage: Any) -> bool:
    return isinstance(usage, Mapping) and bool(usage.get("completion_tokens"))


def _turn(choice: Any) -> tuple[str, Mapping[str, Any]]:
    """The name and the value of a choice's message, or of its piece in a stream."""
    for name in ("message", "delta"):
        if isinstance(choice, Mapping) and isinstance(choice.get(name), Mapping):
            return name, choice[name]
    return "", {}


def _plain(choice: Any) -> Any:
    """A choice in plain text. One that was broken off reads as cut, which LiteLLM understands."""
    name, turn = _turn(choice)
    if not name:
        return choice
    is_broken = _BROKEN_OFF.search(str(choice.get("finish_reason")))
    return (
        choice | {name: with_plain_text(turn)} | ({"finish_reason": "length"} if is_broken else {})
    )


async def _streamed(response: Any) -> Any:
    """Server-sent events. An error that comes before any text is that of the request."""
    lines = _lines(response)
    head: list[bytes] = []
    async for line in lines:
        head.append(line)
        event = _event(line)
        status, meant = (HTTPStatus.OK, None) if event is None else as_meant(event)
        if status != HTTPStatus.OK:
            await response.aclose()
            refused = _response(response, status, content=json.dumps(meant).encode())
            refused.headers["content-type"] = "application/json"
            return refused
        is_silent = event is None or bool(event.get("choices") and not has_text(event))
        if not is_silent or len(head) >= _MAX_EVENTS:
            break
    stream = _stream_class()(head, lines, response.aclose)
    return _response(response, HTTPStatus.OK, stream=stream)


@cache
def _stream_class() -> Any:
    base: Any = importlib.import_module("httpx").AsyncByteStream

    class Stream(base):
        """The lines that were looked at, and the rest."""

        def __init__(self, head: list[bytes], rest: AsyncIterator[bytes], close: Any) -> None:
            self._head, self._rest, self.aclose = head, rest, close

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for line in self._head:
                yield _event_put_right(line)
            async for line in self._rest:
                yield _event_put_right(line)

    return Stream


async def _lines(response: Any) -> AsyncIterator[bytes]:
    """The lines of a stream, with their ends."""
    rest = b""
    async for piece in response.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"data:"):
        return None
    event = loaded(line[5:].decode("utf-8", "replace"))
    return event if isinstance(event, dict) else None


def _event_put_right(line: bytes) -> bytes:
    """A line of a stream: pieces in plain text, errors with a number, which LiteLLM expects."""
    event = _event(line)
    if event is None:
        return line
    meant = as_meant(event)[1]
    error = meant.get("error")
    if isinstance(error, Mapping):
        meant = meant | {"error": dict(error) | {"code": status_of(error)}}
    return line if meant == event else b"data: " + json.dumps(meant).encode() + b"\n"
