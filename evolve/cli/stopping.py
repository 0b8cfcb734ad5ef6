"""Signals that come before a search has begun: an orderly end instead of a sudden one."""

import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

T = TypeVar("T")


class Stopped(KeyboardInterrupt):
    """One of `STOP_SIGNALS` came; whoever holds a worker or a folder gives it up on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stoppable(*, for_good: bool = False) -> Iterator[None]:
    """Within this block the first of `STOP_SIGNALS` raises `Stopped`; a search sets its own.

    Afterwards they do what they did before, or `for_good`, where the process is about to exit,
    nothing: one that came now would replace the exit status.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def stop(number: int, _frame: object) -> NoReturn:
        give_up()
        raise Stopped(number)

    _set(stop)
    try:
        yield
    finally:
        if for_good:
            give_up()
        else:
            for number, handler in before.items():
                signal.signal(number, handler)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, where the first of `STOP_SIGNALS` cancels the coroutine and raises `Stopped`.

    An exception raised by a signal's handler would come between any two instructions, and where it
    hits the entry or exit of a lock, the lock stays locked.
    """
    import asyncio  # takes a moment, and `evolve --help` imports this module

    async def stoppable_task() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        came: list[int] = []

        def stop(number: signal.Signals) -> None:
            came.append(number)
            give_up(loop)
            task.cancel()

        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stop, number)
        try:
            return await coroutine
        except asyncio.CancelledError:
            if came:
                raise Stopped(came[0]) from None
            raise

    return asyncio.run(stoppable_task())


@contextlib.contextmanager
def handling(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Within this block the running loop calls `handler` for each of `STOP_SIGNALS`.

    Then what is left of the command is not to be interrupted (`give_up`). Where nobody else handles
    them, as in a program that uses this as a library, they do what they did before.
    """
    import asyncio

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        give_up(loop)
        if before[signal.SIGTERM] is signal.SIG_DFL:
            for number, was in before.items():
                signal.signal(number, was)


def give_up(loop: "AbstractEventLoop | None" = None) -> None:
    """Giving up is not to be interrupted, but for an impatient Ctrl-C.

    The handlers of a `loop` are taken away, without a moment in which a signal would kill.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        if loop is not None:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
        _set(signal.SIG_IGN)  # forgets what came meanwhile
        signal.signal(signal.SIGINT, signal.default_int_handler)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _set(handler: "signal._HANDLER") -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, handler)
