"""Warnings of the library, as the command shows them."""

import logging
import sys

from evolve.report.text import one_line


class _OnStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"evolve: {one_line(record.getMessage())}", file=sys.stderr, flush=True)


_HANDLER = _OnStandardError(logging.WARNING)


def show_warnings() -> None:
    """From now on warnings of `evolve` are lines on standard error."""
    logging.getLogger("evolve").addHandler(_HANDLER)
