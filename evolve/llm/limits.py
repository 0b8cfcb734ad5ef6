"""Rate limits of one key: requests and tokens per minute, and when to leave it alone.

They hold within one process. Several searches on one key have to share a gateway, or the key's
limits between them.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from evolve.core.errors import ModelUnavailable

MINUTE_S = 60.0


@dataclass(slots=True)
class Taken:
    """An entry of a window. `amount` may be corrected once the true one is known."""

    at: float
    amount: float


class Window:
    """At most `limit` within any `seconds`. An amount above the limit waits for an empty window."""

    def __init__(self, limit: float | None, seconds: float = MINUTE_S) -> None:
        self._limit = limit
        self._seconds = seconds
        self._taken: deque[Taken] = deque()
        self._turn = asyncio.Lock()  # first come, first served

    async def take(self, amount: float) -> Taken:
        """Wait until there is room, and take it."""
        async with self._turn:
            while (delay := self._delay(amount)) > 0:
                await asyncio.sleep(delay)
            entry = Taken(time.monotonic(), amount)
            if self._limit is not None:
                self._taken.append(entry)
            return entry

    def _delay(self, amount: float) -> float:
        """Seconds until the oldest entry leaves, 0 if there is room now."""
        now = time.monotonic()
        while self._taken and self._taken[0].at <= now - self._seconds:
            self._taken.popleft()
        used = sum(entry.amount for entry in self._taken)
        if self._limit is None or not self._taken or used + amount <= self._limit:
            return 0.0
        return self._taken[0].at + self._seconds - now


class Gate:
    """The gate of the calls of all models that share a key, before they are sent."""

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        minute_s: float = MINUTE_S,
    ) -> None:
        self._requests = Window(requests_per_minute, minute_s)
        self._tokens = Window(tokens_per_minute, minute_s)
        self._held_until = 0.0
        self._held_for = ""

    def hold(self, seconds: float, reason: str) -> None:
        """Let nothing through for so long: an endpoint asks all users of its key to wait."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)
        self._held_for = reason

    @asynccontextmanager
    async def passage(self, tokens: int, patience_s: float) -> AsyncIterator[Taken]:
        """Leave for one request of so many tokens at most, as soon as the limits allow it.

        Gives the entry of the token window, to be corrected to what was really used.

        Raises:
            ModelUnavailable: the endpoint wants to be left alone for longer than `patience_s`.
        """
        await self._released(patience_s)
        await self._requests.take(1)
        taken = await self._tokens.take(tokens)
        await self._released(patience_s)  # it may have been held while the limits were waited for
        yield taken

    async def _released(self, patience_s: float) -> None:
        while (wait := self._held_until - time.monotonic()) > 0:
            if wait > patience_s:
                raise ModelUnavailable(self._held_for, retry_after_s=wait)
            await asyncio.sleep(wait)
