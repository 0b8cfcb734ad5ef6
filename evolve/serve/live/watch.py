"""One poller of a store that all open pages share, so that each more costs the search nothing."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evolve.core.errors import EvolveError, StoreError
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.serve.live.records import counters, run_line, step_line

INTERVAL_S = 0.1
LISTING_EVERY = 20  # polls between two listings of all runs
QUIET_S = 15.0  # after which a connection is shown to be alive
MAX_BEHIND = 64  # events that a page may be behind before it has to load everything again
MAX_NEW = 2000  # steps of one event; a page loads what lies between by itself

Event = dict[str, Any]


def _identity(location: str) -> tuple[int, int] | None:
    """Tells a database file from another one in its place; None without a file."""
    try:
        found = Path(location).stat()
    except OSError:  # on a server, or taken away
        return None
    return found.st_dev, found.st_ino


class Watch:
    """Looks for what is new, while any page is open.

    Args:
        store: a connection of its own, since it is used from a thread of its own.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._file = _identity(store.location)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evolve-ui-watch")
        self._pages: set[asyncio.Queue[Event | None]] = set()
        self._polling: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._runs: dict[int, RunRow] = {}
        self._counted: dict[str, Event] = {}
        self._seen: dict[int, int] = {}  # the next sequence number, by run
        self._open: dict[int, set[int]] = {}

    async def events(self) -> AsyncIterator[Event]:
        """What is new from now on; `{}` where nothing was for a while.

        It ends for a page that does not read: the page then loads everything again.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._pages.add(queue)
        if self._polling is None:
            self._looked.clear()
            self._polling = asyncio.create_task(self._poll())
        try:
            await self._looked.wait()  # what a page loads from here on, it is told the changes of
            yield {"hello": True}
            while True:
                try:
                    async with asyncio.timeout(QUIET_S):
                        event = await queue.get()
                except TimeoutError:
                    event = {}
                if event is None:
                    return
                yield event
        finally:
            self._pages.discard(queue)
            if not self._pages and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def close(self) -> None:
        """End the thread, and the streams of all pages."""
        for queue in self._pages:
            queue.put_nowait(None)
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        self._thread.shutdown()

    async def _poll(self) -> None:
        loop, count, was_trouble = asyncio.get_running_loop(), 0, False
        self._counted.clear()  # what it knew is of another time
        while True:
            try:
                listing = count % LISTING_EVERY == 0
                event = await loop.run_in_executor(self._thread, self._look, listing)
            except EvolveError as error:
                event = {"trouble": str(error)}
            if event or was_trouble:  # an empty one says that it is over
                self._send(event or {"runs": []})
            was_trouble = "trouble" in event
            self._looked.set()
            count += 1
            await asyncio.sleep(INTERVAL_S)

    def _send(self, event: Event) -> None:
        for queue in list(self._pages):
            if queue.qsize() >= MAX_BEHIND:
                self._pages.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def _look(self, listing: bool) -> Event:
        """Counters of runs that have changed, and their steps that are new or have changed.

        Raises:
            StoreError: the database was taken away; what is still open of it would never change.
        """
        if _identity(self._store.location) != self._file:
            raise StoreError(
                f"{self._store.location} was deleted, moved or replaced; end `evolve ui`, and "
                "start it with the database to show"
            )
        if listing:
            self._runs = {run.id: run for run in self._store.runs()}
        runs, steps = [], {}
        for run in self._runs.values():
            if not listing and run.state != "running":
                continue
            counted = counters(self._store, run)
            if self._counted.get(run.name) != counted:
                self._counted[run.name] = counted
                runs.append(run_line(self._store, run))
            if found := self._new_steps(run, counted["asked"]):
                steps[run.name] = found
        return {"runs": runs, "steps": steps} if runs or steps else {}

    def _new_steps(self, run: RunRow, asked: int) -> list[Event]:
        first = self._seen.setdefault(run.id, asked)
        was_open = self._open.get(run.id, set())
        if run.state != "running" and asked == first and not was_open:
            return []
        now_open = {ticket.sequence for ticket in self._store.open_tickets(run.id)}
        changed = sorted((was_open - now_open) | set(range(max(first, asked - MAX_NEW), asked)))
        self._seen[run.id], self._open[run.id] = asked, now_open
        return [step_line(self._store.step(run.id, each), run.baseline) for each in changed]
