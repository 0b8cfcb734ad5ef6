"""The judge of `cluster=pull`: workers on other hosts, which fetch evaluations."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from evolve.evaluation.pooled import PooledEvaluator, say
from evolve.serve.guard import Guard
from evolve.serve.http import listen, serving, url_of
from evolve.serve.pull.app import PullApp
from evolve.serve.pull.client import MAX_PAUSE_S
from evolve.serve.pull.registry import Registry
from evolve.worker.service.dispatch.place import Deadlines
from evolve.worker.service.dispatch.pool import Pool

FAREWELL_S = 1.0  # for workers to hear that the search is over
GATHER_S = MAX_PAUSE_S + 0.5  # all workers that an earlier search had are back by then
MISSING = "start `evolve work` on a host with the device"


class PullEvaluator(PooledEvaluator):
    """Asks workers that come to it; use `PullEvaluator.start`."""

    def __init__(self, kind: str, lease_s: float, deadlines: Deadlines) -> None:
        pool = Pool([], say, MISSING)
        super().__init__(pool, deadlines)
        self._registry = Registry(pool, kind, lease_s)
        self._stack = AsyncExitStack()

    @classmethod
    async def start(
        cls,
        *,
        kind: str,
        host: str,
        port: int,
        token: str,
        lease_s: float,
        deadlines: Deadlines | None = None,
        gather_s: float = GATHER_S,
        announce: Callable[[str], None] = say,
    ) -> "PullEvaluator":
        """An evaluator with at least one worker.

        Args:
            kind: the kind of device that workers have to have.
            host: the interface to listen on.
            port: the port; 0 for one that is free.
            token: that workers have to show.
            lease_s: how long a worker may be silent before its evaluations are given to others.
            deadlines: how long to wait for an answer (None: the defaults).
            gather_s: seconds that workers have to come before anything is asked of one.
            announce: takes a line with the address.

        Raises:
            UsageError: the address is taken, or not this machine's.
        """
        evaluator = cls(kind, lease_s, deadlines or Deadlines())
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(evaluator.close)
            await evaluator._open(host, port, token, announce)
            await evaluator._wait_for_workers(gather_s)
            on_failure.pop_all()
        return evaluator

    async def close(self) -> None:
        """Tell the workers that the search is over, and end the server."""
        await self._registry.broker.close(FAREWELL_S)
        await super().close()
        await self._stack.aclose()

    async def _open(
        self, host: str, port: int, token: str, announce: Callable[[str], None]
    ) -> None:
        """Listen, and end leases from now on."""
        listener = self._stack.enter_context(listen(host, port, f"cluster.listen={host}:{port}"))
        app = Guard(PullApp(self._registry), token=token, hosts=(), open_paths=())
        await self._stack.enter_async_context(serving(app, listener))
        sweeping = asyncio.create_task(self._registry.broker.sweep())
        self._stack.callback(sweeping.cancel)
        announce(f"workers connect to {url_of(listener)}")

    async def _wait_for_workers(self, gather_s: float) -> None:
        """Until there is one, and all that an earlier search had have had time to come back.

        No other worker gets the evaluations that those have finished or under way.
        """
        ready = asyncio.get_running_loop().time() + gather_s
        await self._pool.arrival()
        await asyncio.sleep(max(0.0, ready - asyncio.get_running_loop().time()))
