"""Work that outlives the reader of its output: a closed terminal, a pipe's other end."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


class Forgiving:
    """A text stream that falls silent if its target goes away, instead of raising.

    Args:
        stream: the output; None if the process was started without.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")

    def write(self, text: str) -> int:
        with self._falling_silent():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._falling_silent():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _falling_silent(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            silence(self._stream)


def silence(stream: TextIO) -> None:
    """Discard the stream's buffer and all further output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextlib.contextmanager
def outliving_the_terminal() -> Iterator[None]:
    """Within this block neither a hang-up nor a failure to print ends anything."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with (
            contextlib.redirect_stdout(cast(TextIO, Forgiving(sys.stdout))),
            contextlib.redirect_stderr(cast(TextIO, Forgiving(sys.stderr))),
        ):
            yield
    finally:
        signal.signal(signal.SIGHUP, before)
