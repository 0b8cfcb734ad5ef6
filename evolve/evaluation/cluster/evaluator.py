"""`cluster=ray`: the judges of a cluster as one evaluator."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from evolve.core.devices import device_kind
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.evaluation.cluster.connection import (
    Wanted,
    connect,
    is_loss,
    ray_module,
    restore_sigterm,
    why_lost,
)
from evolve.evaluation.cluster.judge import SEATS
from evolve.evaluation.cluster.remote import answer
from evolve.evaluation.cluster.seat import LEAVE_S, Seat
from evolve.evaluation.local import worker_options
from evolve.evaluation.pooled import PooledEvaluator, say
from evolve.worker.service.dispatch.faults import PlaceLost
from evolve.worker.service.dispatch.place import Deadlines
from evolve.worker.service.dispatch.pool import PATIENCE_S, Pool

BEAT_S = 2.0
RETRY_S = 1.0


class RayEvaluator(PooledEvaluator):
    """Asks the judges of a Ray cluster: those that are there, as far as they are its share.

    Use `RayEvaluator.start`. A judge has seats for `SEATS` searches; if there are more searches,
    each takes seats at as many judges as is its share of all seats.

    Args:
        wanted: the judges.
        words: of the worker's command line, after the interpreter.
        python: the interpreter on the nodes (None: the judges' own).
        slots: candidates under way at once at each judge (None: as many as it suggests).
        deadlines: how long to wait for one.
    """

    def __init__(
        self,
        wanted: Wanted,
        words: Sequence[str],
        *,
        python: str | None = None,
        slots: int | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._missing = f"waiting for a {wanted.resource} of the cluster, or for room at its judge"
        super().__init__(Pool([], say, self._missing), deadlines or Deadlines())
        self._wanted = wanted
        self._settings = (tuple(words), python, self._deadlines, slots)
        self._search = uuid.uuid4().hex
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._pending: dict[str, Any] = {}  # judges that have not answered yet, by name
        self._seats: dict[str, Seat] = {}
        self._refusals: list[EvaluatorUnavailable | UsageError] = []
        self._joining = 0
        self._changed = asyncio.Event()
        self._on_close = AsyncExitStack()

    @classmethod
    async def start(
        cls,
        address: str,
        words: Sequence[str],
        *,
        is_gpu: bool,
        accelerator: str | None = None,
        judges: int | None = None,
        **settings: Any,
    ) -> "RayEvaluator":
        """Judges that answer, of a cluster.

        Args:
            address: of the cluster: `auto` or HOST:PORT.
            words: of the worker's command line, after the interpreter.
            is_gpu: whether each judge has a GPU to itself, else a CPU.
            accelerator: type of GPU as Ray calls it (None: the one that there is).
            judges: how many (None: one for each GPU, or node without, that is there or comes).
            settings: those of the constructor.

        Raises:
            UsageError: no Ray, no cluster, no such GPU, or no judge that can be used here.
            EvaluatorUnavailable: no worker comes up.
        """
        connected = await asyncio.to_thread(connect, address)
        async with AsyncExitStack() as on_failure:
            if connected:
                restore_sigterm()
                on_failure.callback(ray_module().shutdown)
            evaluator = cls(Wanted.of(is_gpu, accelerator, judges), words, **settings)
            on_failure.push_async_callback(evaluator._leave)
            await evaluator.up()
            evaluator._on_close = on_failure.pop_all()
        return evaluator

    async def up(self) -> None:
        """Wait for the first judge, and for those that are about to be ready with it.

        Raises:
            UsageError: those that answer cannot be used with these settings, or with each other.
            EvaluatorUnavailable: their workers do not come up.
        """
        self._keepers[""] = watch = asyncio.create_task(self._watch())
        watch.add_done_callback(lambda _: self._changed.set())
        notice = asyncio.get_running_loop().call_later(PATIENCE_S, say, self._missing)
        try:
            while self._joining or not self._pool.in_service:
                if self._refusals and not self._joining:
                    raise self._refusals[0]
                if watch.done():
                    raise EvaluatorUnavailable(f"cluster=ray: {watch.exception()}")
                self._changed.clear()
                await self._changed.wait()
        finally:
            notice.cancel()

    async def close(self) -> None:
        """End this search's workers and leave the judges to others."""
        await self._on_close.aclose()

    async def _leave(self) -> None:
        keepers = list(self._keepers.values())
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        await self._pool.close()
        await asyncio.gather(
            *(seat.leave(forget=True) for seat in self._seats.values()),
            *(_give_up(judge) for judge in self._pending.values()),
        )

    async def _watch(self) -> None:
        """Keep a seat at every judge, of those too that come later."""
        while True:
            with suppress(ray_module().exceptions.RayError):  # the head is being started again
                for name in await asyncio.to_thread(self._wanted.names):
                    if name not in self._keepers:
                        self._keepers[name] = asyncio.create_task(self._keep(name))
            await asyncio.sleep(BEAT_S)

    async def _keep(self, name: str) -> None:
        """Attend a judge as long as it can be used, wherever Ray starts it again."""
        while True:
            try:
                judge = await asyncio.to_thread(self._wanted.judge, name)
                self._pending[name] = judge
                about = await judge.about.remote()
                del self._pending[name]
                if not await asyncio.to_thread(self._wanted.fits, about["node"]):
                    return
                self._seats[name] = seat = Seat(name, judge, about, self._search)
                await self._attend(seat)
            except (UsageError, EvaluatorUnavailable) as refusal:
                await self._refuse(name, refusal)
                return
            except PlaceLost as loss:
                self._seats.pop(name).lose(self._pool, str(loss))
            except ray_module().exceptions.RayError as error:
                if not is_loss(error):
                    unusable = f"{name} cannot run on its node: {why_lost(error)}"
                    await self._refuse(name, EvaluatorUnavailable(unusable))
                    return
            await asyncio.sleep(RETRY_S)

    async def _refuse(self, name: str, refusal: UsageError | EvaluatorUnavailable) -> None:
        """Do without a judge that cannot be used with these settings, or with the others."""
        if seat := self._seats.pop(name, None):
            await seat.leave(forget=True)
        if self._pool.in_service:
            say(f"{name} is not used: {refusal}")
        self._refusals.append(refusal)
        self._changed.set()

    async def _attend(self, seat: Seat) -> None:
        """Take a seat within this search's share, and give it back if the share has become smaller.

        Raises:
            PlaceLost: the judge has gone.
            UsageError, EvaluatorUnavailable: it cannot be used.
        """
        while True:
            await seat.beat()
            if seat.place is None and self._held < self._share:
                await self._take(seat)
            elif seat.is_leaving or (seat.is_held and self._held > self._share):
                await seat.give_back(self._pool, f"{seat.searches} searches share the judges")
            elif seat.is_held and seat.place not in self._pool.places:
                raise PlaceLost  # as one of its calls has found
            await asyncio.sleep(BEAT_S)

    async def _take(self, seat: Seat) -> None:
        self._joining += 1
        try:
            await seat.take(self._pool, *self._settings)
        except PlaceLost:  # as others were sooner, or, as the next beat tells, with the judge
            seat.place = None
        finally:
            self._joining -= 1
            self._changed.set()

    @property
    def _held(self) -> int:
        return sum(seat.is_held for seat in self._seats.values())

    @property
    def _share(self) -> int:
        """At how many judges this search may have a seat."""
        searches = max((seat.searches for seat in self._seats.values()), default=1)
        share = max(1, len(self._seats) * SEATS // searches)
        return min(share, self._wanted.count or share)


async def start_cluster(kind: str, worker: Mapping[str, Any], **settings: Any) -> RayEvaluator:
    """Judges of a kind of device, on the nodes of a cluster.

    Args:
        kind: of the devices.
        worker: the other arguments of `evolve.evaluation.local.worker_options`.
        settings: those of `RayEvaluator.start`.
    """
    words = ["-m", "evolve.worker", "serve", *worker_options(device=kind, **worker)]
    return await RayEvaluator.start(words=words, is_gpu=device_kind(kind).is_gpu, **settings)


async def _give_up(judge: Any) -> None:
    """End a judge that still waits for a node: the cluster would grow for no search."""
    try:
        await answer(judge.about.remote(), LEAVE_S, bare=True)
    except PlaceLost:
        ray_module().kill(judge, no_restart=True)
