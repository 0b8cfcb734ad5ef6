"""A terminal's own behaviour: it echoes Ctrl-C into a panel, and breaks lines inside words."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from evolve.report.text import one_line


def notify(line: str) -> None:
    """A line for people beside the output, on standard error."""
    print(f"evolve: {one_line(line)}", file=sys.stderr, flush=True)


def wrapped(line: str) -> str:
    """The line with breaks between words if standard output is a terminal, else as it is."""
    if not sys.stdout.isatty():
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    width = max(shutil.get_terminal_size().columns, 20)
    pieces = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(pieces) or line


@contextmanager
def without_echo() -> Iterator[None]:
    """Within this block a Ctrl-C is not echoed: its ^C would shift the panel."""
    before = _modes()
    if before is None:
        yield
        return
    import termios

    quiet = list(before)
    quiet[3] &= ~termios.ECHOCTL
    _set(quiet)
    try:
        yield
    finally:
        _set(before)


def _modes() -> list[Any] | None:
    """The terminal's modes; None if standard input is none."""
    try:
        import termios
    except ImportError:
        return None
    with suppress(OSError, ValueError, AttributeError, termios.error):
        return termios.tcgetattr(sys.stdin.fileno())
    return None


def _set(modes: list[Any]) -> None:
    """Set them, unless the terminal is gone, or in the hands of another job of the shell.

    A background job that sets them is stopped by the kernel.
    """
    import termios

    with suppress(OSError, termios.error):
        fd = sys.stdin.fileno()
        if os.tcgetpgrp(fd) == os.getpgrp():
            termios.tcsetattr(fd, termios.TCSANOW, modes)
