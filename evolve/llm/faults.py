"""Why a call failed: one word for each reason, out of what providers and libraries raise.

LiteLLM gives exceptions of its own for everything, with made-up status codes where no answer came
(a refused connection is a 500 there). What really happened is in the chain of causes, and it
decides two things that must not be guessed: whether the request reached the endpoint, and whether
it may have been billed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from evolve.llm.bodies import said
from evolve.llm.secrets import scrub
from evolve.llm.waits import wait_of

MAX_MESSAGE = 300
_MAX_BODY = 20_000


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
    """A failed attempt: the reason, the endpoint's words without keys, and when to come again.

    `body` is the text of the refusal as it came, for `evolve.llm.quirks`.
    """

    kind: FaultKind
    message: str
    retry_after_s: float | None = None
    body: str = field(default="", repr=False)

    @property
    def words(self) -> str:
        """All that the endpoint says, without parts of the request that it quotes."""
        return said(self.body).words or self.message


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
    r"input (is )?too long|input tokens exceed|maximum number of tokens|maximum allowed length|"
    r"exceed[a-z]* (the )?(available |model.s )?context|too large for model|"
    r"max_new_tokens. must be <=|must have less than \d+ tokens",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content[_ ](policy|filter|management)|safety system|usage polic|responsibleai|moderation|"
    r"flagged",
    re.IGNORECASE,
)
# Not "exceeded your current quota": Gemini says so of requests per minute, too.
_QUOTA = re.compile(
    r"insufficient[_ ](quota|balance|funds|credit)|credit balance|key limit exceeded|"
    r"billing_hard_limit|spend(ing)?[_ ]limit|credit_balance|api usage limits|"
    r"余额不足",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api[_ ]?key[_ ](not valid|invalid)|(invalid|incorrect) api[_ ]?key", re.I)
_NO_MODEL = re.compile(
    r"model[_ ]not[_ ](found|exist)|invalid model\b|not a valid model|model .{0,80}does not exist|"
    r"(no|invalid) such model|model identifier is invalid|on-demand throughput|no models? loaded|"
    r"deploymentnotfound",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
_REFUSALS = (400, 403, 422, 429)
_BY_WORDS = (  # the first that fits; llama.cpp before b6500 says 500 of a prompt that is too long
    (FaultKind.QUOTA, _REFUSALS, _QUOTA),
    (FaultKind.FILTERED, _REFUSALS, _FILTERED),
    (FaultKind.TOO_LONG, (400, 422, 500), _TOO_LONG),
    (FaultKind.TOO_LONG, (429,), _TOO_LARGE),  # than a minute's tokens: no waiting helps
    (FaultKind.AUTHENTICATION, (400,), _BAD_KEY),
    (FaultKind.NO_SUCH_MODEL, (400, 422), _NO_MODEL),
)
_KEY = re.compile(r"api[_ ]?key|credential", re.IGNORECASE)


def classify(error: BaseException, *, sent: bool) -> Fault:
    """The reason behind an exception that LiteLLM raised.

    Args:
        error: the exception.
        sent: whether LiteLLM came as far as sending the request.
    """
    causes = list(_chain(error))
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    response = next(filter(None, map(_real_response, causes)), None)
    body = _body(response)
    message = _message(error, causes, body)
    if names & _NEVER_SENT:
        return Fault(FaultKind.UNREACHABLE, message)
    if response is not None:
        kind = _by_status(response.status_code, f"{message} {said(body).words}")
        wait_s = wait_of(response.headers, body)
        if response.status_code == HTTPStatus.PAYMENT_REQUIRED and wait_s is not None:
            kind = FaultKind.RATE_LIMIT  # OpenRouter, while calls under way hold the money
        return Fault(kind, message, wait_s, body)
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


def _body(response: Any) -> str:
    """The text of a response's body; empty if it was not read."""
    try:
        return str(response.text)[:_MAX_BODY] if response is not None else ""
    except RuntimeError:  # of httpx: a stream that was not read
        return ""


def _by_status(status: int, words: str) -> FaultKind:
    for kind, statuses, pattern in _BY_WORDS:
        if status in statuses and pattern.search(words):
            return kind
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


def _message(error: BaseException, causes: list[BaseException], body: str) -> str:
    """The endpoint's message, in one line and without keys."""
    told = said(body)
    message, code = told.message, told.code
    for cause in causes if not message else ():
        held = getattr(cause, "body", None)
        if isinstance(held, dict) and isinstance(held.get("message"), str):
            message, code = held["message"], str(held.get("code") or "")
            break
    if message:
        return one_line(f"{message} ({code})" if code and code not in message else message)
    return one_line(str(error) or str(causes[-1]) or type(causes[-1]).__name__)


def one_line(text: str) -> str:
    """The first line without keys: LiteLLM adds tracebacks and the prompt in further ones."""
    text = scrub(text.strip().partition("\n")[0].partition("Traceback (most recent")[0].strip())
    text = re.sub(r"^((litellm\.)?\w+(Error|Exception)(: | - ))+", "", text)
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "..."
