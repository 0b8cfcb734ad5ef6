"""A worker on another node, as its place in the search's process sees it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from evolve.core.errors import EvaluatorUnavailable
from evolve.evaluation.cluster.connection import ray_module, why_lost
from evolve.worker.service.dispatch.faults import CLOSED, FAULTS, PlaceLost, WorkerDied

MARGIN_S = 60.0  # the node keeps deadlines itself


class RemoteWorker:
    """A search's worker behind a judge's actor.

    Args:
        judge: handle of the actor (`evolve.evaluation.cluster.judge.Judge`).
        search: whose worker it is.
        number: of the worker, as the judge counts.
    """

    def __init__(self, judge: Any, search: str, number: int) -> None:
        self.phases: Mapping[str, str] = {}
        self._judge = judge
        self._of = (search, number)
        self._end: Exception | None = None
        self._ended = asyncio.Event()

    @classmethod
    async def start(
        cls, judge: Any, search: str, words: Sequence[str], python: str | None
    ) -> "RemoteWorker":
        """Start a worker; raises PlaceLost or EvaluatorUnavailable."""
        number = await answer(judge.start.remote(search, list(words), python), MARGIN_S)
        return cls(judge, search, number)

    @property
    def alive(self) -> bool:
        return self._end is None

    async def ask(
        self, method: str, params: Mapping[str, Any], deadline_s: float, about: str = ""
    ) -> Any:
        if self._end:
            raise self._end
        asked = self._judge.ask.remote(*self._of, method, dict(params), deadline_s, about)
        call = asyncio.create_task(answer(asked, deadline_s + MARGIN_S))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({call, ended}, return_when=asyncio.FIRST_COMPLETED)
            if self._end and not call.done():
                raise self._end
            return await call
        except (PlaceLost, WorkerDied) as fault:
            self._finish(fault)
            raise
        finally:
            call.cancel()
            ended.cancel()

    def kill(self, why: str) -> None:
        self._finish(WorkerDied(why))
        self._judge.kill.remote(*self._of, why)

    def lose(self, why: str) -> None:
        """Its node has gone: calls under way raise PlaceLost."""
        self._finish(PlaceLost(why))

    async def close(self, close_s: float) -> None:
        self._finish(EvaluatorUnavailable(CLOSED))
        try:
            await answer(self._judge.close.remote(*self._of, close_s), close_s + 1, bare=True)
        except PlaceLost:
            return  # and with it its worker

    def _finish(self, fault: Exception) -> None:
        """The first reason stands for calls that come later."""
        self._end = self._end or fault
        self._ended.set()


async def answer(reference: Any, deadline_s: float, *, bare: bool = False) -> Any:
    """The answer of a judge, a `bare` value or a result; a fault is raised.

    Raises:
        PlaceLost: the actor is gone, or does not answer in time.
    """
    try:
        async with asyncio.timeout(deadline_s):
            said = await reference
    except TimeoutError:
        raise PlaceLost(f"it did not answer within {deadline_s:g} s") from None
    except ray_module().exceptions.RayError as error:
        raise PlaceLost(why_lost(error)) from error
    if bare:
        return said
    fault, value = said
    if fault:
        raise FAULTS[fault](value)
    return value
