"""Version 1 of the worker's protocol: one JSON object a line, requests in, replies out.

    {"v": 1, "id": 7, "method": "hello", "params": {}}
    {"v": 1, "id": 7, "result": {...}}
    {"v": 1, "id": 7, "error": {"kind": "usage" | "unavailable", "message": "..."}}

The phases of a request with `"phases": true` are reported before its reply, and decide nothing:

    {"v": 1, "id": 7, "phase": "timing, 3 of 7 pairs"}

Replies come in any order. A line that is no request is answered with an error of kind `usage` and
the id that it had, if it had one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evolve.core.errors import UsageError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the worker."""

    id: int
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    phases: bool = False


class ProtocolError(UsageError):
    """A line that is no request of this version; `id` is its id if it has one."""

    def __init__(self, message: str, id: int | None = None) -> None:  # noqa: A002
        super().__init__(message)
        self.id = id


def parse_request(line: str) -> Request:
    """Read a request.

    Raises:
        ProtocolError: the line is no JSON object, of another version, or lacks a field.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a request is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise ProtocolError(f"a request is a JSON object, not a {type(data).__name__}")
    given = data.get("id")
    number = given if isinstance(given, int) and not isinstance(given, bool) else None
    if data.get("v") != VERSION:
        raise ProtocolError(
            f"protocol version {data.get('v')!r} is not spoken here, but {VERSION}; "
            "use a client and a worker of the same release",
            number,
        )
    if number is None:
        raise ProtocolError(f"a request needs a whole number as its id, not {given!r}")
    method, params = data.get("method"), data.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict):
        raise ProtocolError("a request needs a method (text) and params (an object)", number)
    return Request(number, method, params, phases=data.get("phases") is True)


def result(id: int, value: Any) -> str:  # noqa: A002
    """The line that answers a request."""
    return json.dumps({"v": VERSION, "id": id, "result": value}) + "\n"


def phase(id: int, text: str) -> str:  # noqa: A002
    """The line that gives the phase of a request."""
    return json.dumps({"v": VERSION, "id": id, "phase": text}) + "\n"


def failure(id: int | None, kind: str, message: str) -> str:  # noqa: A002
    """The line that says why a request has no answer; `kind` is `usage` or `unavailable`."""
    return json.dumps({"v": VERSION, "id": id, "error": {"kind": kind, "message": message}}) + "\n"
