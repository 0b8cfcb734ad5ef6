"""Signals that come before a search has begun: an orderly end instead of a sudden one."""

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Stopped(KeyboardInterrupt):
    """One of `STOP_SIGNALS` came; whoever holds a worker or a folder gives it up on the way out.

    Like its base it interrupts asyncio's loop, which then cancels and awaits what is under way.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Within this block the first of `STOP_SIGNALS` raises `Stopped`; a search sets its own."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def stop(number: int, _frame: object) -> NoReturn:
        _set(signal.SIG_IGN)  # giving up is not to be interrupted, but for an impatient Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise Stopped(number)

    _set(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _set(handler: "signal._HANDLER") -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, handler)
