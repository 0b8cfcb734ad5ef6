"""Warnings of the library, as the command shows them."""

import logging

from evolve.cli.console.terminal import notify


class _OnStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        notify(record.getMessage())


_HANDLER = _OnStandardError(logging.WARNING)


def show_warnings() -> None:
    """From now on warnings of `evolve` are lines on standard error."""
    logging.getLogger("evolve").addHandler(_HANDLER)
