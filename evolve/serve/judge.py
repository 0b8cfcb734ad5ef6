"""The evaluator of the service: started again when it has given up, while jobs wait."""

import asyncio
from collections.abc import Awaitable, Callable

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.protocols import Evaluator

FIRST_WAIT_S = 1.0
MAX_WAIT_S = 60.0

Start = Callable[[], Awaitable[Evaluator]]


class Judge:
    """Holds the evaluator that answers now.

    Args:
        start: starts one.
        say: takes a line for the operator of the server.

    Attributes:
        trouble: why none answers at present; empty while one does.
    """

    def __init__(self, start: Start, say: Callable[[str], None]) -> None:
        self.trouble = "it has not been started yet"
        self._start = start
        self._say = say
        self._evaluator: Evaluator | None = None
        self._newest: Evaluator | None = None
        self._starting = asyncio.Lock()

    @property
    def known(self) -> Evaluator:
        """The newest evaluator, whether or not it still answers: its identity is known.

        Raises:
            EvaluatorUnavailable: there has been none yet.
        """
        if self._newest is None:
            raise EvaluatorUnavailable(self.trouble)
        return self._newest

    async def up(self) -> None:
        """Start for the first time.

        Raises:
            EvaluatorUnavailable: it does not come up.
            UsageError: the device or the sandbox asked for is not to be had.
        """
        async with self._starting:
            await self._begin()

    async def ready(self) -> Evaluator:
        """The evaluator, as soon as one answers."""
        async with self._starting:
            wait_s = FIRST_WAIT_S
            while self._evaluator is None:
                try:
                    await self._begin()
                except (EvaluatorUnavailable, UsageError) as error:
                    self.trouble = str(error)
                    self._say(f"no judge: {error}; trying again in {wait_s:g} s")
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, MAX_WAIT_S)
            return self._evaluator

    async def give_up(self, evaluator: Evaluator, why: str) -> None:
        """End an evaluator that cannot answer any more; the next `ready` starts another."""
        async with self._starting:
            if evaluator is not self._evaluator:  # another task has seen to it
                return
            self._evaluator, self.trouble = None, why
            self._say(f"the judge is started again: {why}")
            await evaluator.close()

    async def _begin(self) -> None:
        self._evaluator = self._newest = await self._start()
        self.trouble = ""

    async def close(self) -> None:
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            await evaluator.close()
