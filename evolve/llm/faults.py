"""Why a call failed: one word for each reason, out of what providers and libraries raise.

LiteLLM gives exceptions of its own for everything, with made-up status codes where no answer came
(a refused connection is a 500 there). What really happened is in the chain of causes, and it
decides two things that must not be guessed: whether the request reached the endpoint, and whether
it may have been billed.
"""

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from evolve.llm.secrets import scrub

MAX_MESSAGE = 300
MAX_RETRY_AFTER_S = 3600.0  # what an endpoint may ask for; a search asks again then


class FaultKind(StrEnum):
    """Kinds of faults. Only `LOST` may have been billed, and `FILTERED` by some providers."""

    UNREACHABLE = "unreachable"  # never sent: no such host, refused, TLS
    RATE_LIMIT = "rate limit"
    OVERLOADED = "overloaded"  # 5xx: the endpoint will not answer now
    NOT_A_MODEL = "not a model"  # something answers, in HTML
    LOST = "lost"  # sent, and no usable answer came
    AUTHENTICATION = "authentication"
    QUOTA = "quota"
    NO_SUCH_MODEL = "no such model"
    TOO_LONG = "too long"
    FILTERED = "filtered"
    BAD_REQUEST = "bad request"
    SET_UP = "set-up"  # LiteLLM itself gave up before anything was sent: no key, no package


RETRIED = frozenset(
    {FaultKind.UNREACHABLE, FaultKind.RATE_LIMIT, FaultKind.OVERLOADED, FaultKind.NOT_A_MODEL}
)
"""Surely not billed, and perhaps better in a moment."""

FOR_PEOPLE = frozenset(
    {FaultKind.AUTHENTICATION, FaultKind.QUOTA, FaultKind.NO_SUCH_MODEL, FaultKind.SET_UP}
)
"""A fault that a person has to mend."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt: the reason, the endpoint's words without keys, and when to come again."""

    kind: FaultKind
    message: str
    retry_after_s: float | None = None


_NEVER_SENT = frozenset(
    {
        "ConnectError",  # httpx
        "ConnectTimeout",
        "PoolTimeout",
        "ClientConnectorError",  # aiohttp
        "ConnectionRefusedError",
        "gaierror",
        "SSLCertVerificationError",
        "UnsupportedProtocol",
        "InvalidURL",
    }
)
_STATUSES = {
    401: FaultKind.AUTHENTICATION,
    402: FaultKind.QUOTA,
    403: FaultKind.AUTHENTICATION,
    404: FaultKind.NO_SUCH_MODEL,
    408: FaultKind.LOST,  # a gateway gave up on a request that was under way
    409: FaultKind.OVERLOADED,
    413: FaultKind.TOO_LONG,
    425: FaultKind.OVERLOADED,
    429: FaultKind.RATE_LIMIT,
    504: FaultKind.LOST,
    524: FaultKind.LOST,
}
_CERTAINLY_SENT = frozenset(
    {"ReadError", "ReadTimeout", "RemoteProtocolError", "APITimeoutError", "JSONDecodeError"}
)
_TOO_LONG = re.compile(
    r"context[_ ](length|window|limit|size)|maximum context|prompt is too long|too many tokens|"
    r"input (is )?too long|input tokens exceed|maximum number of tokens",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content[_ ](policy|filter|management)|safety system|usage polic|responsibleai|moderation|"
    r"flagged",
    re.IGNORECASE,
)
# Not "exceeded your current quota": Gemini says so of requests per minute, too.
_QUOTA = re.compile(r"insufficient[_ ](quota|balance|funds|credit)|credit balance", re.IGNORECASE)
_KEY = re.compile(r"api[_ ]?key|credential", re.IGNORECASE)


def classify(error: BaseException, *, sent: bool) -> Fault:
    """The reason behind an exception that LiteLLM raised.

    Args:
        error: the exception.
        sent: whether LiteLLM came as far as sending the request.
    """
    causes = list(_chain(error))
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    message = _message(error, causes)
    if names & _NEVER_SENT:
        return Fault(FaultKind.UNREACHABLE, message)
    response = next(filter(None, map(_real_response, causes)), None)
    if response is not None:
        kind = _by_status(response.status_code, message)
        return Fault(kind, message, _retry_after(response))
    if "Empty or invalid response from LLM endpoint" in message:
        return Fault(FaultKind.NOT_A_MODEL, message)
    if sent or names & _CERTAINLY_SENT:
        return Fault(FaultKind.LOST, f"the answer was lost: {message}")
    return Fault(_before_sending(names, message), message)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _real_response(error: BaseException) -> Any | None:
    """The HTTP response that an error status came in; LiteLLM's own exceptions invent one."""
    if type(error).__module__.partition(".")[0] not in ("openai", "httpx"):
        return None
    response = getattr(error, "response", None)
    return response if getattr(response, "status_code", 0) >= HTTPStatus.BAD_REQUEST else None


def _by_status(status: int, message: str) -> FaultKind:
    by_words = status in (400, 403, 422, 429)
    if by_words and _QUOTA.search(message):
        return FaultKind.QUOTA
    if by_words and _FILTERED.search(message):
        return FaultKind.FILTERED
    if status in (400, 422) and _TOO_LONG.search(message):
        return FaultKind.TOO_LONG
    other = FaultKind.OVERLOADED if status >= 500 else FaultKind.BAD_REQUEST
    return _STATUSES.get(status, other)


def _before_sending(names: set[str], message: str) -> FaultKind:
    if "AuthenticationError" in names or _KEY.search(message):
        return FaultKind.AUTHENTICATION
    if "ContextWindowExceededError" in names:
        return FaultKind.TOO_LONG
    if names & {"NotFoundError", "LiteLLMUnknownProvider"} or "LLM Provider NOT" in message:
        return FaultKind.NO_SUCH_MODEL
    return FaultKind.SET_UP


def _message(error: BaseException, causes: list[BaseException]) -> str:
    """The endpoint's message, in one line and without keys."""
    for cause in causes:
        body = getattr(cause, "body", None)
        if isinstance(body, dict) and isinstance(body.get("message"), str):
            code = body.get("code")
            said = f"{body['message']} ({code})" if code else body["message"]
            return _one_line(said)
    return _one_line(str(error) or str(causes[-1]) or type(causes[-1]).__name__)


def _one_line(text: str) -> str:
    """The first line: LiteLLM adds tracebacks and the prompt in further ones."""
    text = scrub(text.strip().partition("\n")[0].partition("Traceback (most recent")[0].strip())
    text = re.sub(r"^((litellm\.)?\w+(Error|Exception)(: | - ))+", "", text)
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "..."


def _retry_after(response: Any) -> float | None:
    """Seconds that the endpoint asks to wait, as a number or as a date."""
    headers = response.headers
    if "retry-after-ms" in headers:
        wait = _number(headers["retry-after-ms"])
        return None if wait is None else _within(wait / 1e3)
    value = headers.get("retry-after", "")
    wait = _number(value)
    if wait is None:
        try:
            wait = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return _within(wait)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _within(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
