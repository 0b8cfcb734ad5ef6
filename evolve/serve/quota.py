"""The quota of device time that a server is under, in a database that it shares with searches."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from evolve.core.errors import EvolveError, UsageError
from evolve.core.run_store import RunStore
from evolve.search.quotas import device_time_over
from evolve.store.database.user import current_user

EVERY_S = 2.0  # how often device time is charged, and quotas are read


class OverQuota(EvolveError):
    """No more jobs are taken or judged until the quota is raised; the message says whose it is."""


class DeviceQuota:
    """Charges a server's device time to its user and project, and knows when none is left.

    Jobs that are being judged when a quota is used up are finished and charged.

    Args:
        store: has the quotas; writable.
        project: of the server, "" for none.

    Attributes:
        refusal: why no job is taken; empty if jobs are.
    """

    def __init__(self, store: RunStore, project: str) -> None:
        self._store, self._project = store, project
        self._user = current_user()
        self._uncharged_s = 0.0
        self.refusal = ""

    def start(self) -> None:
        """Raise UsageError if there is nothing left."""
        self.refusal = self._reason()
        if self.refusal:
            raise UsageError(self.refusal)

    def add(self, device_time_s: float) -> None:
        """An evaluation has ended."""
        self._uncharged_s += device_time_s

    def require(self) -> None:
        """Raise OverQuota if there is nothing left; a quota that was raised counts at once."""
        if self.refusal:
            self.refusal = self._reason()
        if self.refusal:
            raise OverQuota(self.refusal)

    async def watch(self, say: Callable[[str], None]) -> None:
        """Charge and read the quotas again and again, until cancelled; charge the rest then."""
        try:
            while True:
                before = self.refusal
                await self._settle(say)
                if self.refusal != before:
                    say(self.refusal or "the quota was raised; jobs are judged again")
                await asyncio.sleep(EVERY_S)
        finally:
            with suppress(EvolveError):
                self._charge(self._take())

    async def _settle(self, say: Callable[[str], None]) -> None:
        """In a thread, since a server of databases may keep it waiting."""
        seconds = self._take()
        try:
            await asyncio.to_thread(self._charge, seconds)
            self.refusal = await asyncio.to_thread(self._reason)
        except EvolveError as error:
            self._uncharged_s += seconds
            say(f"quotas: {error}; trying again in {EVERY_S:g} s")

    def _take(self) -> float:
        seconds, self._uncharged_s = self._uncharged_s, 0.0
        return seconds

    def _charge(self, seconds: float) -> None:
        if seconds:
            self._store.charge(self._project, seconds)

    def _reason(self) -> str:
        allowances = self._store.allowances(self._user, self._project)
        return next(filter(None, map(device_time_over, allowances)), "")

    def close(self) -> None:
        """Let go of the database."""
        self._store.close()
