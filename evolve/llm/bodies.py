"""Errors and texts in the body of a reply, in any of the usual shapes.

Errors come as OpenAI's `{"error": {"message", "type", "code"}}`, as `{"error": "text"}` (Ollama,
LM Studio), `{"message", "code"}` (vLLM, Bedrock, Mistral), `{"detail": [...]}` (FastAPI), in a list
(Gemini), or around the text of another provider's error (OpenRouter's `metadata.raw`).
`tests/llm/endpoint_replies` names the sources.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_STATUS_BY_WORDS = tuple(  # of `type`, `code`, `status` or the message, if none is a number
    (status, re.compile(words, re.IGNORECASE))
    for status, words in (
        (408, "timeout|timed out"),
        (402, "billing|insufficient.(quota|balance|credit)"),
        (429, "rate.?limit|too.many.requests|throttl|resource.exhausted"),
        (529, "overloaded"),
        (503, "unavailable|capacity|no.available|is.loading|warming"),
        (401, "authentication|unauthorized|api.key"),
        (403, "permission"),
        (404, "not.found"),
        (413, "too.large"),
        (500, r"server.error|internal|api.error|provider|upstream|network|\b50[0-9]\b"),
    )
)
_GENERIC = re.compile(r"^(provider returned error|error|bad request)?\.?$", re.IGNORECASE)
_PARTS = ("text", "output_text")
_THOUGHTS = ("thinking", "reasoning", "thought")
_NESTED = 4  # an error inside of an error, and so on


def loaded(text: str) -> Any:
    """JSON data; None if the text is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def error_of(body: Any) -> Mapping[str, Any] | None:
    """The error that a body consists of, as a mapping with `message`; None if it has none."""
    if isinstance(body, list) and body:
        return error_of(body[0])
    if not isinstance(body, Mapping):
        return None
    error = body.get("error")
    if isinstance(error, Mapping) and any(error.get(name) for name in ("message", "code", "type")):
        return error
    if isinstance(error, str) and error:
        return {"message": error, "code": body.get("code") or body.get("status")}
    if isinstance(base := body.get("base_resp"), Mapping) and base.get("status_code"):  # MiniMax
        return {"message": str(base.get("status_msg") or "")}
    if body.get("object") == "error" or body.get("type") == "error" or "detail" in body:
        return {"message": body.get("message") or body.get("detail")} | dict(body)
    return None


def status_of(error: Mapping[str, Any]) -> int:
    """The HTTP status that an error stands for: its own, or by its words, else 400."""
    for name in ("code", "status", "status_code", "raw_status_code"):
        value = str(error.get(name, ""))
        if value.isdecimal() and 400 <= int(value) < 600:
            return int(value)
    kinds = " ".join(str(error.get(name) or "") for name in ("type", "code", "status"))
    for words in (kinds, message_of(error)):
        for status, pattern in _STATUS_BY_WORDS:
            if pattern.search(words):
                return status
    return 400


def message_of(error: Any, depth: int = _NESTED) -> str:
    """The words of an error: those of the error inside of it if its own say nothing."""
    if isinstance(error, str):
        inner = loaded(error) if error.lstrip()[:1] in ("{", "[") and depth else None
        return error if inner is None else message_of(inner, depth - 1) or error
    if isinstance(error, list):
        return "; ".join(filter(None, (message_of(each, depth - 1) for each in error if depth)))
    if not isinstance(error, Mapping) or not depth:
        return ""
    if "loc" in error and "msg" in error:  # FastAPI: where in the body, and what about it
        where = error["loc"] if isinstance(error["loc"], list) else [error["loc"]]
        return ".".join(map(str, where)) + f": {error['msg']}"
    said = next(filter(None, (message_of(each, depth - 1) for each in _inside(error))), "")
    raw = (error.get("metadata") or {}) if _GENERIC.match(said) else {}
    detail = message_of(raw.get("raw"), depth - 1) if isinstance(raw, Mapping) else ""
    return f"{said}: {detail}" if said and detail else said or detail


def _inside(error: Mapping[str, Any]) -> Iterator[Any]:
    for name in ("message", "error", "detail", "msg", "Message"):
        if error.get(name):
            yield error[name]


@dataclass(frozen=True, slots=True)
class Said:
    """The error in the text of a body; all is empty if there is none."""

    message: str = ""
    code: str = ""
    type: str = ""
    param: str = ""

    @property
    def words(self) -> str:
        """All of it; parts of the request that a body quotes are left out."""
        return " ".join(filter(None, (self.message, self.code, self.type, self.param)))


def said(text: str) -> Said:
    """The error in the text of a body."""
    body = loaded(text)
    error = error_of(body) or (body if isinstance(body, Mapping) else None)
    if error is None:
        return Said()
    details = error.get("details")
    inner = details.get("error_code") if isinstance(details, Mapping) else None  # Anthropic
    named = {name: str(error.get(name) or "") for name in ("type", "param")}
    return Said(message_of(error), code=str(error.get("code") or inner or ""), **named)


def with_plain_text(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A message, or a piece of one, with a list of parts replaced by its text and its reasoning.

    Mistral's Magistral sends `thinking` and `text` parts; other parts hold no text.
    """
    content = turn.get("content")
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return dict(turn)
    plain = dict(turn) | {"content": "".join(_texts(content, _PARTS))}
    thought = "".join(_texts(content, _THOUGHTS))
    if thought and not plain.get("reasoning_content"):
        plain["reasoning_content"] = thought
    refused = "".join(_texts(content, ("refusal",)))
    return plain | ({"refusal": refused} if refused else {})


def _texts(parts: list[Any], types: tuple[str, ...]) -> Iterator[str]:
    """Texts of the parts of some types; that of a thought may be a list of parts again."""
    for part in parts:
        if isinstance(part, str) and "text" in types:
            yield part
        elif isinstance(part, Mapping) and part.get("type", "text") in types:
            held = next((part[name] for name in (*types, "text", "summary") if part.get(name)), "")
            if isinstance(held, str):
                yield held
            elif isinstance(held, list):
                yield "".join(_texts(held, _PARTS))
