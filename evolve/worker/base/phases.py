"""The phase of a call to the worker, reported to its caller. It decides nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str], None]

SOON_S = 1.0  # a shorter wait is not told
_of_thread = threading.local()


@contextmanager
def telling(tell: Tell) -> Iterator[None]:
    """Within this block `tell` hears of the phases that this thread enters."""
    _of_thread.tell, _of_thread.phase = tell, ""
    try:
        yield
    finally:
        _of_thread.tell = None


def enter(phase: str) -> None:
    """This thread's call is at `phase` from now on."""
    if tell := _tell():
        _of_thread.phase = phase
        tell(phase)


@contextmanager
def waiting(what: Callable[[], str]) -> Iterator[None]:
    """If the block takes long, `what()` is told, and afterwards the phase before it.

    Args:
        what: the phase of the wait; empty to keep the phase before.
    """
    tell = _tell()
    if tell is None:
        yield
        return
    over = threading.Event()
    said: list[str] = []

    def told() -> None:
        if not over.wait(SOON_S) and (text := what()):
            said.append(text)
            tell(text)

    threading.Thread(target=told, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        if said:
            tell(_of_thread.phase)


def _tell() -> Tell | None:
    tell: Tell | None = getattr(_of_thread, "tell", None)
    return tell
