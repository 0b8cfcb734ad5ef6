"""A reply of a product with its expected outcome, and the shapes of OpenAI's API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.core.model import CallStatus
from evolve.testing.model_server import Raw

BAD = "invalid_request_error"
GOOD = "Here it is."
COUNTED = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
STREAM = {"stream": True}
LARGE = {"max_tokens": 16384}
DRAFT = "A draft:\n```python\nx = 0\n```\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a product says, and what has to come of it.

    Attributes:
        product: as the guide's table names it.
        version: of which the source speaks, or of its interface.
        says: the row of the table.
        source: where this is documented or reported.
        replies: what the server says, one after another; the last is repeated.
        model: as LiteLLM spells it.
        settings: of the endpoint, beside the model's.
        text, reasoning: of the answer.
        status: of the reply.
        attempts: how often the request is sent.
        holds, lacks: parts of the last request's body.
        stops: words of the error that ends the run; empty if it goes on.
        calls: how many calls it takes to stop.
    """

    product: str
    version: str
    says: str
    source: str
    replies: Sequence[Raw]
    model: str = "openai/m"
    settings: Mapping[str, Any] = field(default_factory=dict)
    system: bool = False
    text: str = GOOD
    reasoning: str = ""
    status: CallStatus = CallStatus.COMPLETED
    attempts: int = 2
    holds: Mapping[str, Any] = field(default_factory=dict)
    lacks: Sequence[str] = ()
    stops: str = ""
    calls: int = 1


def answer(content: Any = GOOD, finish: str = "stop", usage: Any = True, **message: Any) -> Raw:
    """A completion of OpenAI's API."""
    message = {"role": "assistant", "content": content} | message
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "message": message}
    if error := choice["message"].pop("error", None):
        choice["error"] = error
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Raw(body | {"usage": COUNTED if usage is True else usage}, delivers=True)


def pieces(*deltas: Mapping[str, Any], finish: str = "stop") -> Raw:
    """A streamed completion of OpenAI's API."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [
        head | {"choices": [{"index": 0, "delta": dict(each), "finish_reason": None}]}
        for each in deltas
    ]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": COUNTED}
    return Raw([*events, head | last, "[DONE]"], events=True, delivers=True)


def refused(
    status: int, message: Any, headers: Mapping[str, str] | None = None, **more: Any
) -> Raw:
    """An error of OpenAI's API."""
    return Raw({"error": {"message": message} | more}, status, headers or {})


def bare(status: int, message: Any, **more: Any) -> Raw:
    """An error that is not inside of an `error`."""
    return Raw(
        {"object": "error", "message": message, "param": None, "code": status} | more, status
    )
