"""How long an endpoint asks to wait is understood in whichever form it says so."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.llm.waits import MAX_RETRY_AFTER_S, wait_of

OPENROUTER = (
    '{"error": {"message": "x", "metadata": {"headers": {"X-RateLimit-Reset": "EPOCH_MS"}}}}'
)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, "", 7),
        ({"Retry-After": "1.5"}, "", 1.5),
        ({"retry-after": "250ms"}, "", 0.25),
        ({"retry-after": "1m30s"}, "", 90),
        ({"retry-after": "9", "retry-after-ms": "1500"}, "", 1.5),
        ({"retry-after": "HTTP"}, "", 90),
        ({"retry-after": "ISO"}, "", 90),
        ({"anthropic-ratelimit-tokens-reset": "RFC3339"}, "", 90),
        ({"x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        ({"x-ratelimit-reset-requests": "120ms"}, "", 0.12),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "0"}, "", 1),
        ({"x-ratelimit-reset-requests": "1h", "x-ratelimit-remaining-requests": "9"}, "", None),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6s"}, "", 6),
        ({"x-ratelimit-reset": "EPOCH"}, "", 90),
        ({"ratelimit-reset": "30"}, "", 30),
        ({"x-ratelimit-reset-tokens": "0", "x-ratelimit-remaining-tokens": "-1"}, "", None),
        ({}, OPENROUTER, 90),
        ({}, '{"error": {"details": [{"retryDelay": "40s"}]}}', 40),
        ({}, '{"error": {"message": "Please retry after 45 seconds."}}', 45),
        ({}, '{"error": {"message": "Please try again in 1m2.5s. Visit"}}', 62.5),
        ({}, '{"error": {"message": "Please try again in 350ms."}}', 0.35),
        ({"retry-after": "3"}, "retry after 86400 seconds", 3),
        ({}, "retry after 86400 seconds", MAX_RETRY_AFTER_S),
        ({}, "try again later", None),
        ({"retry-after": "soon"}, "", None),
    ],
)
def test_a_wait_is_found(headers, body, seconds):
    in_90_s = datetime.now(UTC) + timedelta(seconds=90)
    times = {
        "HTTP": format_datetime(in_90_s, usegmt=True),
        "ISO": in_90_s.isoformat(),
        "RFC3339": in_90_s.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "EPOCH": str(in_90_s.timestamp()),
    }
    headers = {name: times.get(value, value) for name, value in headers.items()}
    wait = wait_of(headers, body.replace("EPOCH_MS", f"{in_90_s.timestamp() * 1000:.0f}"))
    if seconds == 90:
        assert 60 < wait <= 91
    else:
        assert wait == (None if seconds is None else pytest.approx(seconds))


@given(st.dictionaries(st.sampled_from(["retry-after", "x-ratelimit-reset"]), st.text()), st.text())
def test_whatever_is_said_the_wait_is_none_or_within_an_hour(headers, body):
    wait = wait_of(headers, body)
    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_S
