"""What a terminal does by itself, and must not while a panel is redrawn in place."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def without_echo() -> Iterator[None]:
    """Within this block a Ctrl-C is not echoed: its ^C would shift the panel by what it takes."""
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
    """The terminal's modes; None where standard input is none."""
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
