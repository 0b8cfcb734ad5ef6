"""Asynchronous functions made callable from code that is not, also if an event loop runs."""

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
NOTE = """Waits for the end, also where an event loop is running, as in a notebook.

    KeyboardInterrupt cancels running work; a search can be resumed then.

    """


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The function with the same parameters that waits for the result."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return _run(functools.partial(function, *args, **kwargs))

    call.__name__ = call.__qualname__ = function.__name__.removesuffix("_async")
    summary, _, rest = (function.__doc__ or "").partition("\n\n    ")
    call.__doc__ = f"{summary}\n\n    {NOTE}{rest}"
    return call


def _run(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in a thread with an event loop of its own: that of the caller may have one already."""
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[T]] = []

    async def main() -> T:
        tasks.append(asyncio.ensure_future(function()))
        return await tasks[0]

    def work() -> T:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(main())

    def interrupt() -> None:
        for task in tasks:
            task.cancel()

    interrupted = False
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="evolve") as pool:
        done = pool.submit(contextvars.copy_context().run, work)
        while not done.done():
            try:
                wait([done])
            except KeyboardInterrupt:
                interrupted = True
                with suppress(RuntimeError):  # the loop was closed at this moment
                    loop.call_soon_threadsafe(interrupt)
    if interrupted:
        raise KeyboardInterrupt
    return done.result()
