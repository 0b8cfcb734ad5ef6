"""Searches that clients start: each an `evolve run` of its own, within the server's budget."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from evolve.app.config.upgrade import complete
from evolve.app.database import open_store, place, store_word
from evolve.app.library.words import as_words
from evolve.app.mcp.budget import Budget
from evolve.app.models import has_model
from evolve.core.errors import OK, RESUMABLE, StoreError, UsageError
from evolve.search.steering import steer
from evolve.search.termination import parse_duration

STARTED_S = 30.0  # that a call waits for a run to be stored
STOPPED_S = 40.0  # that a call waits for a run to end
LOG_LINES, LINE_CHARS = 40, 500
LOOK_S = 0.1


@dataclass(slots=True)
class Running:
    """A search under way.

    Attributes:
        process: `evolve run`.
        wall_time_s: reserved for it.
        usd: reserved for it.
        usd_before: cost of the run before.
        log: the last lines of its output.
    """

    process: asyncio.subprocess.Process
    wall_time_s: float
    usd: float
    usd_before: float = 0.0
    began: float = field(default_factory=time.monotonic)
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    reader: "asyncio.Task[None] | None" = None

    @property
    def is_over(self) -> bool:
        return self.reader is not None and self.reader.done()


class Searches:
    """The searches of one server, by the names of their runs.

    Args:
        location: the database.
        settings: of every run, by dotted name (`device`, `sandbox.require`, ...).
        budget: limits their wall time and cost.
    """

    def __init__(self, location: str, settings: Mapping[str, Any], budget: Budget) -> None:
        self._location = location
        self._settings = dict(settings)
        self._budget = budget
        self._running: dict[str, Running] = {}

    async def start(
        self,
        name: str,
        task: str | None,
        asked: Mapping[str, str | None],
        wall_time: str,
        evaluations: int | None,
        usd: float,
    ) -> None:
        """Start a search with settings that a client has `asked` for, by dotted name.

        `task` None continues the run of that name.

        Raises:
            UsageError: the budget does not hold it, or `evolve run` refuses it.
        """
        if name in self._running and not self._running[name].is_over:
            raise UsageError(f"run {name} is under way; `run_status` tells how far it is")
        wall_time_s = parse_duration(wall_time)
        spent_s, spent_usd, judged = (0.0, 0.0, 0) if task else self._spent(name)
        self._require_usd(name if task is None else None, asked["llm.model"], usd)
        settings = {
            **asked,
            "termination.evaluations": None if evaluations is None else judged + evaluations,
            "termination.usd": spent_usd + usd if usd else None,
        }
        given: dict[str, Any] = {key: each for key, each in settings.items() if each is not None}
        given["termination.wall_time"] = f"{spent_s + wall_time_s:.0f}s"
        if task:
            places = {f"store.{key}": value for key, value in place(self._location).items()}
            places = {key: value for key, value in places.items() if value is not None}
            given = {"task": task, "name": name, **places, **self._settings, **given}
            words = ["run", *as_words(given)]
        else:
            words = ["resume", name, store_word(self._location), *as_words(given)]
        self._reserve(wall_time_s, usd)
        running = Running(await _spawn(words), wall_time_s, usd, spent_usd)
        running.reader = asyncio.create_task(self._follow(name, running))
        self._running[name] = running
        await self._begun(name, running, is_new=task is not None)

    async def stop(self, name: str) -> None:
        """End a search in order; the run can be continued.

        Raises:
            UsageError: this server has none of that name under way.
        """
        running, reader = self._under_way(name)
        with suppress(ProcessLookupError):
            running.process.terminate()
        await asyncio.wait([reader], timeout=STOPPED_S)

    async def steer(self, name: str, change: str, value: str) -> str:
        """Store a change that a search takes before its next step; what was stored, in words.

        Raises:
            UsageError: this server has none of that name under way, or the change cannot be meant.
        """
        self._under_way(name)

        def stored() -> str:
            with open_store(self._location, read_only=False) as store:
                return steer(store, store.run(name), change, value, via="mcp").text

        return await asyncio.to_thread(stored)

    def _under_way(self, name: str) -> "tuple[Running, asyncio.Task[None]]":
        running = self._running.get(name)
        if running is None or running.is_over or running.reader is None:
            raise UsageError(
                f"run {name} is not under way here; one that another command started ends by its "
                "own budget, or by Ctrl-C there, and `evolve steer` changes it"
            )
        return running, running.reader

    def log(self, name: str) -> list[str]:
        """The last lines of a search's output; none of one that this server has not started."""
        return list(self._running[name].log) if name in self._running else []

    async def close(self) -> None:
        """End all searches in order; their runs can be continued."""
        open_ones = [each for each in self._running.values() if not each.is_over]
        for each in open_ones:
            with suppress(ProcessLookupError):
                each.process.terminate()
        readers = [each.reader for each in open_ones if each.reader is not None]
        if readers:
            await asyncio.wait(readers, timeout=STOPPED_S)

    def _require_usd(self, run: str | None, model: str | None, usd: float) -> None:
        """Raise UsageError for a search that would ask models without a limit on their cost."""
        asks = bool(model)
        if run is not None:
            with open_store(self._location) as store:
                asks = asks or has_model(complete(store.run(run).config))
        if asks and not usd:
            raise UsageError(
                f"model={model or 'of the run'}: its calls cost money; give usd, which limits "
                "them, or start a run without a model, by the built-in operators"
            )

    def _reserve(self, wall_time_s: float, usd: float) -> None:
        self._budget.take("wall_time_s", wall_time_s)
        try:
            self._budget.take("usd", usd)
        except UsageError:
            self._budget.give_back("wall_time_s", wall_time_s)
            raise

    def _spent(self, name: str) -> tuple[float, float, int]:
        with open_store(self._location) as store:
            progress = store.progress(store.run(name).id)
        return progress.wall_time_s, progress.usd or 0.0, progress.evaluations

    async def _follow(self, name: str, running: Running) -> None:
        """Keep the last lines of a search, and give back its unused budget at the end."""
        assert running.process.stdout is not None
        async for line in _lines(running.process.stdout):
            running.log.append(line)
        await running.process.wait()
        took_s = time.monotonic() - running.began
        self._budget.give_back("wall_time_s", running.wall_time_s - took_s)
        try:
            cost = self._spent(name)[1] - running.usd_before
        except UsageError:  # it has stored nothing
            cost = 0.0
        self._budget.give_back("usd", running.usd - cost)

    async def _begun(self, name: str, running: Running, *, is_new: bool) -> None:
        """Wait until the run is stored, or the command has ended."""
        until = time.monotonic() + STARTED_S
        while time.monotonic() < until and not running.is_over:
            if is_new and self._is_stored(name):
                return
            if not is_new and time.monotonic() - running.began > 1:
                return
            await asyncio.sleep(LOOK_S)
        if running.process.returncode not in (None, OK, RESUMABLE):
            raise UsageError("\n".join(running.log) or f"run {name} ended before it began")
        if is_new and not self._is_stored(name):
            raise UsageError(f"run {name} is still starting; `run_status` tells how far it is")

    def _is_stored(self, name: str) -> bool:
        try:
            with open_store(self._location) as store:
                return name in {run.name for run in store.runs()}
        except (UsageError, StoreError):  # it is being made
            return False


async def _spawn(words: list[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evolve", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # a client's Ctrl-C is not for the search
    )


async def _lines(stream: asyncio.StreamReader) -> Any:
    """Lines of a command's output, cut to a length; an endless one costs no memory."""
    rest = b""
    while data := await stream.read(65_536):
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[:LINE_CHARS]
        for line in whole:
            yield line.decode(errors="replace")[:LINE_CHARS].rstrip()
    if rest:
        yield rest.decode(errors="replace")
