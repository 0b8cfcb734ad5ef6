"""A worker's way to the search: requests that are repeated until they are answered."""

import asyncio
import random
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from evolve.core.errors import UsageError

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 2.0  # short: a search that is started again waits for all workers to be back
REQUEST_S = 30.0
REPORT_INTERVAL_S = 60.0


class Gone(Exception):
    """The search does not know the session: its lease has ended, or the search was restarted."""


class TooLarge(Exception):
    """The search takes no body of that size."""


class NoSearch(Exception):
    """No search was there for as long as the worker was to wait."""


class SearchClient:
    """Speaks to one search, for all workers of this process.

    Args:
        url: of the search.
        token: that it asks for.
        where: the source of the token, for messages.
        idle_s: how long to wait for a search that is not there.
        say: takes a line when the search cannot be reached, and when it can again.

    Attributes:
        was_there: whether the search has ever answered.
    """

    def __init__(
        self, url: str, token: str, where: str, idle_s: float, say: Callable[[str], None]
    ) -> None:
        self.url = url
        self.was_there = False
        self._where = where
        self._idle_s = idle_s
        self._say = say
        self._lost_at = 0.0  # when the search was last there, while it is not
        self._told_at = 0.0
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            verify=ssl.create_default_context() if url.startswith("https") else False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(
        self, path: str, body: Mapping[str, Any], patience_s: float = REQUEST_S
    ) -> dict[str, Any]:
        """The answer to a request, which is repeated as often as it takes.

        Args:
            path: of the operation.
            body: plain data.
            patience_s: after which a request is taken for lost.

        Raises:
            Gone: the session is not known.
            TooLarge: the body is.
            UsageError: the search refuses the token or the worker.
            NoSearch: there was no search for too long.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                response = await self._http.post(path, json=body, timeout=patience_s)
            except httpx.TransportError as error:
                self._away(f"{type(error).__name__} {error}".strip())
            else:
                if response.status_code < 500 and response.status_code not in (408, 429):
                    self._back()
                    return self._told(response)
                self._away(f"it says {response.status_code}")
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def ask_once(self, path: str, body: Mapping[str, Any], patience_s: float) -> None:
        """A request of which no answer is needed."""
        try:
            await self._http.post(path, json=body, timeout=patience_s)
        except httpx.TransportError:
            return

    def _told(self, response: httpx.Response) -> dict[str, Any]:
        status, said = response.status_code, response.text[:1000]
        try:
            data = response.json()
        except ValueError:
            data = None
        if isinstance(data, dict):
            if response.is_success:
                return data
            said = str(data.get("detail", said))
        if status == 410:
            raise Gone
        if status == 413:
            raise TooLarge(said)
        if status in (401, 403):
            raise UsageError(
                f"{self.url} refuses the token of {self._where}; take the token that the search "
                "was started with (cluster.token_file)"
            )
        if status == 409:
            raise UsageError(said)
        raise UsageError(
            f"{self.url} is no search with cluster=pull (it says {status}); give the address that "
            "`evolve run` prints"
        )

    def _away(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        self._lost_at = self._lost_at or now
        if now - self._lost_at >= self._idle_s:
            raise NoSearch(f"no search at {self.url} for {self._idle_s:g} s: {why}")
        if not self._told_at or now - self._told_at >= REPORT_INTERVAL_S:
            self._told_at = now
            self._say(f"no search at {self.url}: {why}; trying again")

    def _back(self) -> None:
        self.was_there = True
        if self._told_at:
            self._say(f"{self.url} answers")
        self._lost_at = self._told_at = 0.0
