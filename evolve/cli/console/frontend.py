"""The frontend of the command line: lines, a live view, signals and the report at the end."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from evolve.cli.console.live import MAX_RECOUNTED, LiveDisplay, PlainDisplay, Tally, open_display
from evolve.cli.console.progress import doing
from evolve.cli.console.summary import summary
from evolve.cli.console.terminal import notify, wrapped
from evolve.cli.signals import handling, reason_of
from evolve.core.errors import INTERRUPTED, UsageError
from evolve.core.run_store import RunStore
from evolve.report.run.facts import RunFacts, gather
from evolve.report.run.html import render
from evolve.report.text import write_text
from evolve.search.execution.pipeline import Outcome
from evolve.search.termination import Rule
from evolve.store import RunRow


class Terminal:
    """A command's messages to its user (`evolve.app.frontend.Frontend`)."""

    def __init__(self) -> None:
        self._display: PlainDisplay | LiveDisplay | None = None  # while a search is under way

    def say(self, line: str) -> None:
        if self._display is None:
            print(line, flush=True)
        else:
            self._display.say(line)

    def warn(self, line: str) -> None:
        notify(line)

    def doing(
        self, what: str | Callable[[], str], *, plain: bool = True
    ) -> AbstractContextManager[None]:
        return doing(what, plain=plain)

    def display(
        self, store: RunStore, run: RunRow, config: Mapping[str, Any], rule: Rule
    ) -> PlainDisplay | LiveDisplay:
        tally = Tally(config["termination"], rule, config["baseline"])
        tally.recall(store, run)
        self._display = open_display(tally, title=f"{run.name}: {run.task.name}")
        return self._display

    @contextmanager
    def interruptible(
        self, stop: Callable[[str], None], leave: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """The first signal drains, the second leaves at once; nothing is lost either way.

        Once the block is over, the rest of the command must not be interrupted.
        """
        stopping = False

        def on_signal(number: signal.Signals) -> None:
            nonlocal stopping
            if leave is not None:
                if stopping and number is signal.SIGINT:
                    self._leave(leave)
                self.say(f"{number.name}: finishing what is under way; Ctrl-C again leaves at once")
            stopping = True
            stop(reason_of(number))

        with handling(on_signal):
            yield

    def _leave(self, leave: Callable[[], None]) -> None:
        try:
            leave()
            if self._display is not None:
                self._display.__exit__(None, None, None)
        finally:  # also where the disk is full, or the run was taken over
            os._exit(INTERRUPTED)

    def ended(self, store: RunStore, run: RunRow, outcome: Outcome) -> None:
        """The summary; with the report, but for a run so long that the command's end would wait."""
        self._display = None
        whole = store.next_sequence(run.id) <= MAX_RECOUNTED
        facts = gather(store, run.name, whole=whole)
        report = _report(store, facts) if whole else ""
        for line in summary(facts, outcome, store.location, report):
            print(wrapped(line))


def _report(store: RunStore, facts: RunFacts) -> str:
    """Where the report has been written; in place of a path, why it could not be."""
    try:
        return str(write_text(store.folder / f"{facts.run.name}.html", render(facts)))
    except UsageError as error:
        return f"none: {error}"
