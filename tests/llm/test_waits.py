"""How long an endpoint asks to wait is understood in whichever form it says so."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.llm.waits import LONGEST_WAIT_S, wait_of

SOON = datetime.now(UTC) + timedelta(seconds=90)
OPENROUTER = '{"error": {"message": "x", "metadata": {"headers": {"X-RateLimit-Reset": "%d"}}}}'


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, "", 7),
        ({"Retry-After": "1.5"}, "", 1.5),
        ({"retry-after": "250ms"}, "", 0.25),
        ({"retry-after": "1m30s"}, "", 90),
        ({"retry-after": "9", "retry-after-ms": "1500"}, "", 1.5),
        ({"retry-after": format_datetime(SOON, usegmt=True)}, "", 90),
        ({"retry-after": SOON.isoformat()}, "", 90),
        ({"anthropic-ratelimit-tokens-reset": SOON.strftime("%Y-%m-%dT%H:%M:%SZ")}, "", 90),
        ({"x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        ({"x-ratelimit-reset-requests": "120ms"}, "", 0.12),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "0"}, "", 1),
        ({"x-ratelimit-reset-requests": "1h", "x-ratelimit-remaining-requests": "9"}, "", None),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6s"}, "", 6),
        ({"x-ratelimit-reset": str(int(time.time()) + 90)}, "", 90),
        ({"ratelimit-reset": "30"}, "", 30),
        ({"x-ratelimit-reset-tokens": "0", "x-ratelimit-remaining-tokens": "-1"}, "", None),
        ({}, OPENROUTER % ((time.time() + 90) * 1000), 90),
        ({}, '{"error": {"details": [{"retryDelay": "40s"}]}}', 40),
        ({}, '{"error": {"message": "Please retry after 45 seconds."}}', 45),
        ({}, '{"error": {"message": "Please try again in 1m2.5s. Visit"}}', 62.5),
        ({}, '{"error": {"message": "Please try again in 350ms."}}', 0.35),
        ({"retry-after": "3"}, "retry after 86400 seconds", 3),
        ({}, "retry after 86400 seconds", LONGEST_WAIT_S),
        ({}, "try again later", None),
        ({"retry-after": "soon"}, "", None),
    ],
)
def test_a_wait_is_found(headers, body, seconds):
    wait = wait_of(headers, body)
    assert wait == (
        None if seconds is None else pytest.approx(seconds, abs=60 if seconds == 90 else 0.01)
    )


@given(st.dictionaries(st.sampled_from(["retry-after", "x-ratelimit-reset"]), st.text()), st.text())
def test_whatever_is_said_the_wait_is_none_or_within_an_hour(headers, body):
    wait = wait_of(headers, body)
    assert wait is None or 0 <= wait <= LONGEST_WAIT_S
