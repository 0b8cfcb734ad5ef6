"""Signals that come before a search has begun: an orderly end instead of a sudden one."""

import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

T = TypeVar("T")


class Stopped(KeyboardInterrupt):
    """One of `STOP_SIGNALS` came; workers and folders are given up as it propagates."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stoppable(*, for_good: bool = False) -> Iterator[None]:
    """Within this block the first of `STOP_SIGNALS` raises `Stopped`; a search sets its own.

    Afterwards they do what they did before, or `for_good`, if the process is about to exit,
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
            _restore(before)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, where the first of `STOP_SIGNALS` cancels the coroutine and raises `Stopped`.

    An exception raised by a signal's handler would come between any two instructions, and if it
    hits the entry or exit of a lock, the lock stays locked.
    """
    import asyncio  # takes a moment, and `evolve --help` imports this module

    async def stoppable_task() -> T:
        task = asyncio.current_task()
        assert task is not None
        came: list[int] = []

        def stop(number: signal.Signals) -> None:
            if not came:
                came.append(number)
                give_up()
                task.cancel()

        with _heard(stop):
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

    Then the rest of the command must not be interrupted (`give_up`). If a program that uses this as
    a library handles them itself, they do what they did before.
    """
    is_alone = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with _heard(handler):
        try:
            yield
        finally:
            if not is_alone:
                give_up()


@contextlib.contextmanager
def _heard(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Within this block the running loop calls `handler`; then it is as before, or given up.

    A handler of `loop.add_signal_handler` can be removed by way of SIG_DFL only, and a signal that
    comes at that moment kills: another thread takes it, in spite of this one's mask.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    calls: list[asyncio.Handle] = []

    def hear(number: int, _frame: object) -> None:
        calls.append(loop.call_soon_threadsafe(handler, signal.Signals(number)))

    reading, writing = socket.socketpair()
    with reading, writing:
        for end in (reading, writing):
            end.setblocking(False)
        # If another thread has taken the signal nothing else wakes the loop, which sleeps.
        woken = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        loop.add_reader(reading, reading.recv, 4096)
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        _set(hear)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:  # not given up
                _restore(before)
            signal.set_wakeup_fd(woken)
            loop.remove_reader(reading)
            for call in calls:  # of the last moment, for a block that is over
                call.cancel()


def reason_of(number: signal.Signals) -> str:
    """The reason of a search that a signal has stopped."""
    return f"stopped by {number.name}"


def give_up() -> None:
    """Giving up is not to be interrupted, but for an impatient Ctrl-C."""
    _set(signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _set(handler: "signal._HANDLER") -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, handler)


def _restore(before: "Mapping[signal.Signals, signal._HANDLER]") -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
