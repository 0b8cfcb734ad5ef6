"""How long an endpoint asks to wait, in whichever form it says so."""

import math
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from evolve.llm.bodies import error_of, loaded

MAX_RETRY_AFTER_S = 3600.0  # what an endpoint may ask for; a search asks again then

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = r"\d+(?:\.\d+)?\s?(?:ms|milliseconds?|seconds?|minutes?|hours?|days?|[smhd])"
_DURATION = re.compile(rf"(?:{_PART}\s?)+", re.IGNORECASE)
_ONE = re.compile(r"(\d+(?:\.\d+)?)\s?(ms|milli|[smhd])", re.IGNORECASE)
# Gemini's RetryInfo, then the words of Azure, Gemini, Groq and OpenAI.
_IN_BODY = (
    re.compile(rf'"retry_?delay"\s*:\s*"({_PART})"', re.IGNORECASE),
    re.compile(rf"(?:retry|try again) (?:in|after) ((?:{_PART}\s?)+)", re.IGNORECASE),
)
_RESET = re.compile(r"^(x-)?(rate-?limit|anthropic-ratelimit)(-.*)?-reset(-.*)?$")
_EPOCH_S, _EPOCH_MS = 1e9, 1e12  # larger numbers are times, not durations


def wait_of(headers: Mapping[str, str], body: str) -> float | None:
    """Seconds that a refusal asks to wait, at most an hour; None if it does not say.

    `Retry-After` goes first, then the body. The times at which limits are reset count for limits
    that are used up.
    """
    named = {name.lower(): value for name, value in {**headers, **_quoted(body)}.items()}
    milliseconds = _number(named.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _within(milliseconds / 1e3)
    for wait in (_seconds(named.get("retry-after", "")), _in_words(body), _until_reset(named)):
        if wait is not None:
            return _within(wait)
    return None


def _quoted(body: str) -> dict[str, str]:
    """Headers of another provider, as OpenRouter quotes them in the body."""
    metadata = (error_of(loaded(body)) or {}).get("metadata")
    headers = metadata.get("headers") if isinstance(metadata, Mapping) else None
    return {k: str(v) for k, v in headers.items()} if isinstance(headers, Mapping) else {}


def _in_words(body: str) -> float | None:
    found = next(filter(None, (pattern.search(body) for pattern in _IN_BODY)), None)
    return _duration(found[1]) if found else None


def _until_reset(headers: Mapping[str, str]) -> float | None:
    waits = [wait for wait in map(_seconds, _resets(headers)) if wait is not None and wait > 0]
    return max(waits, default=None)


def _resets(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        left = _number(headers.get(name.replace("-reset", "-remaining"), ""))
        if _RESET.match(name) and (left is None or left <= 0):
            yield value


def _seconds(text: str) -> float | None:
    """Seconds from now: a number of them, a duration (`6m0s`), a date, or a time since 1970."""
    number = _number(text)
    if number is None:
        return _duration(text) if _DURATION.fullmatch(text.strip()) else _until_date(text)
    if number > _EPOCH_S and math.isfinite(number):
        return number / (1e3 if number > _EPOCH_MS else 1) - time.time()
    return number


def _duration(text: str) -> float:
    return sum(
        float(number) * _UNITS["ms" if unit.lower() == "milli" else unit.lower()]
        for number, unit in _ONE.findall(text)
    )


def _until_date(text: str) -> float | None:
    """Of HTTP (RFC 9110), or of RFC 3339 as Anthropic writes it; without a zone it is UTC."""
    try:
        date = datetime.fromisoformat(text) if text[:2] == "20" else parsedate_to_datetime(text)
        zoned = date if date.tzinfo else date.replace(tzinfo=UTC)
        return zoned.timestamp() - time.time()
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _within(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
