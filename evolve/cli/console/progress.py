"""The current work of a command, with the seconds since its start."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evolve.app.text import elapsed_text

if TYPE_CHECKING:
    from rich.live import Live

_begun: list[tuple[Callable[[], str], float]] = []
_live: "list[Live]" = []  # the one line of the terminal, while anything is being done


@contextmanager
def doing(what: str | Callable[[], str], *, plain: bool = True) -> Iterator[None]:
    """Show the current work for as long as the block lasts; on a terminal with the seconds since.

    Args:
        what: the work, in words; called anew whenever the line is redrawn.
        plain: whether it is a line of the output if that is no terminal.
    """
    said = what if callable(what) else lambda: what
    if plain and not sys.stdout.isatty():
        print(f"{said()} ...", flush=True)
    if not sys.stderr.isatty():
        yield
        return
    entry = said, time.monotonic()
    _begun.append(entry)
    if len(_begun) == 1:
        _live.append(_line())
        _live[0].start()
    try:
        yield
    finally:
        _begun.remove(entry)
        if not _begun:
            _live.pop().stop()


def _line() -> "Live":
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def shown() -> Text:
        now = time.monotonic()
        parts = [f"{said()}, {elapsed_text(now - since)}" for said, since in list(_begun)]
        return Text("; ".join(parts), style="dim")

    console = Console(stderr=True)
    return Live(console=console, get_renderable=shown, refresh_per_second=2, transient=True)
