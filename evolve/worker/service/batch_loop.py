"""The loop of a batch: which request goes to a judge when, and the records it writes."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.worker.service.batch_costs import Costs
from evolve.worker.service.batch_files import MAX_FAILURES, Answers, BatchRequest
from evolve.worker.service.dispatch.faults import CallFailed
from evolve.worker.service.dispatch.place import Deadlines, Place
from evolve.worker.service.dispatch.pool import Pool
from evolve.worker.service.shards import Shards

RESERVE_S = 5.0  # before the deadline: to end the judges and to write the last lines
DEADLINES = Deadlines(hello_s=300.0, close_s=2.0)
MAX_CONSECUTIVE_INFRA = 5  # verdicts of our own fault with no other in between


class Batch:
    """Judges the requests without answers in a folder.

    Args:
        requests: all of the batch.
        answers: of earlier starts.
        shards: where answers go.
        places: of the judges; there is one for each device.
        ends_at: when to have ended, on the monotonic clock; infinite: when all is done.
        say: takes lines of progress.
    """

    def __init__(
        self,
        requests: Sequence[BatchRequest],
        answers: Answers,
        shards: Shards,
        places: Sequence[Place],
        *,
        ends_at: float = math.inf,
        say: Callable[[str], None] = print,
    ) -> None:
        self._requests, self._answers, self._shards = requests, answers, shards
        self._pool = Pool(places, say)
        self._ends_at, self._say = ends_at, say
        self._costs = Costs()
        left = self._left()
        self._waiting = [request for request in left if not answers.of(request).failures]
        self._suspects = [request for request in left if answers.of(request).failures]
        self._greeted: dict[str, Mapping[str, Any]] = {}
        self._statuses: Counter[str] = Counter()
        self._judging: asyncio.Task[None] | None = None
        self._stopped_by = ""
        self._infra_in_a_row = 0
        self._works = False  # a judge has given a verdict in this start

    def stop(self, reason: str) -> None:
        """Cancel running requests, and end. Safe from a signal handler."""
        self._stopped_by = self._stopped_by or reason
        if self._judging is not None:
            self._judging.get_loop().call_soon_threadsafe(self._judging.cancel)

    def run(self) -> int:
        """Judge until all is answered or the time is up; returns how many requests are left.

        Raises:
            UsageError: a judge refuses its options, or they are not of one kind.
            EvaluatorUnavailable: one does not come up, or all fail.
        """
        return asyncio.run(self._run())

    async def _run(self) -> int:
        started = time.monotonic()
        self._judging = judging = asyncio.create_task(self._judge_all())
        if self._stopped_by:
            judging.cancel()
        await asyncio.wait([judging], timeout=self._left_s())
        if not judging.done():
            self.stop("the deadline")
            await asyncio.wait([judging])
        await self._pool.close()
        self._write_totals(time.monotonic() - started)
        if not judging.cancelled():
            judging.result()  # raises what ended it
        return len(self._left())

    def _write_totals(self, seconds: float) -> None:
        self._write(
            {
                "totals": {
                    "requests": len(self._requests),
                    "left": len(self._left()),
                    "by_status": dict(self._statuses),
                    "seconds": round(seconds, 3),
                    "ended_by": self._stopped_by or "the last answer",
                }
            }
        )

    def _left(self) -> list[BatchRequest]:
        return [request for request in self._requests if not self._answers.of(request).final]

    def _left_s(self) -> float:
        """Seconds in which an answer still counts."""
        return self._ends_at - RESERVE_S - time.monotonic()

    def _write(self, record: Mapping[str, Any]) -> None:
        """To the disk, and into the known answers, as a later start will read it."""
        self._shards.write(record)
        self._answers.take(record)

    async def _judge_all(self) -> None:
        """All in their order, then each alone under which a judge has failed before."""
        if not self._waiting and not self._suspects:
            return
        await self._pool.up()
        places = self._pool.places
        slots = sum(place.slots for place in places)
        await _all(self._judge_from(self._waiting, alone=False) for _ in range(slots))
        if not self._waiting:
            await _all(self._judge_from(self._suspects, alone=True) for _ in places)
        if self._waiting or self._suspects:
            self._stopped_by = "the deadline"

    async def _judge_from(self, queue: list[BatchRequest], *, alone: bool) -> None:
        """One request after another, as long as there is time for one."""
        while queue:
            async with self._pool.place(alone=alone) as place:
                self._greet(place)
                request = self._next(queue)
                if request is None:
                    return
                await self._judge(request, place)

    def _greet(self, place: Place) -> None:
        """Write down a judge that is new, or was started again."""
        if self._greeted.get(place.name) is not place.hello:
            self._greeted[place.name] = place.hello
            self._write({"hello": place.hello})
            self._say(f"judge: {place.hello.get('device_class')}, {place.slots} at once")

    def _next(self, queue: list[BatchRequest]) -> BatchRequest | None:
        """Take out the next request for which there is time, as it seems."""
        for at, request in enumerate(queue):
            if self._costs.expected_s(request) < self._left_s():
                return queue.pop(at)
        return None

    async def _judge(self, request: BatchRequest, place: Place) -> None:
        about = {"subject": request.subject}
        self._write({"begun": request.id, **about})
        begun = time.monotonic()
        try:
            result = await place.ask(request.method, request.params, DEADLINES.call_s, request.id)
            said: dict[str, Any] = {"result": result}
        except UsageError as error:
            said = {"error": {"kind": "usage", "message": str(error)}}
        except CallFailed as failure:
            said = {"error": {"kind": "unavailable", "message": str(failure)}}
            self._say(f"the judge failed under {request.id}: {failure}")
        except (asyncio.CancelledError, EvaluatorUnavailable):
            self._write({"dropped": request.id, **about})
            raise
        self._take(request, said, time.monotonic() - begun)

    def _take(self, request: BatchRequest, said: Mapping[str, Any], seconds: float) -> None:
        """Write down an answer, and try again later if it is a fault of our own."""
        result: Any = said.get("result")
        error: Any = said.get("error")
        status, final, at_once = "answered", True, True
        if error is not None:
            status = "refused" if error["kind"] == "usage" else "failed"
            final = status == "refused"
        elif request.method == "evaluate":
            verdict = Evaluation.from_json(result)
            status, final = str(verdict.status), verdict.status is not Status.INFRA
            at_once = verdict.is_worth_another_try
        self._write(_answer_line(request, said, final=final, seconds=seconds))
        self._costs.add(request, seconds)
        self._report(request, status, seconds)
        if final:
            self._infra_in_a_row = 0
            self._works = self._works or request.method == "evaluate"
            return
        why = error["message"] if error else result["feedback"]
        self._retry(request, why, at_once=at_once)
        self._infra_in_a_row += error is None
        if self._infra_in_a_row >= MAX_CONSECUTIVE_INFRA:
            raise EvaluatorUnavailable(f"the judge fails on every request, last: {why}")

    def _retry(self, request: BatchRequest, why: str, *, at_once: bool = True) -> None:
        """After a failure of our own: once more at the end, or after so many never again.

        If it would only fail again by then (not `at_once`), the end is that of a later start.
        """
        if self._answers.of(request).failures < MAX_FAILURES:
            if at_once:
                self._suspects.append(request)
            return
        if not self._works and (len(self._left()) > 1 or not self._has_worked()):
            raise EvaluatorUnavailable(f"the judge fails at {request.id}, and at all before: {why}")
        why = f"it failed {MAX_FAILURES} times by our own fault, the last time: {why}"
        said: dict[str, Any] = {"error": {"kind": "unavailable", "message": why}}
        if request.method == "evaluate":
            said = {"result": _infra(request, self._answers.hello, why).to_json()}
        self._write(_answer_line(request, said, final=True, seconds=0.0))

    def _has_worked(self) -> bool:
        """Whether any start has come to a verdict."""
        answers = (self._answers.of(request).final for request in self._requests)
        return any(answer is not None and "status" in (answer.result or {}) for answer in answers)

    def _report(self, request: BatchRequest, status: str, seconds: float) -> None:
        self._statuses[status] += 1
        done = len(self._requests) - len(self._left())
        left = f", {self._left_s():.0f} s left" if math.isfinite(self._ends_at) else ""
        self._say(f"{done}/{len(self._requests)} {request.id}: {status}, {seconds:.1f} s{left}")


def _answer_line(
    request: BatchRequest, said: Mapping[str, Any], *, final: bool, seconds: float
) -> dict[str, Any]:
    about = {"id": request.id, "subject": request.subject}
    return {**about, "final": final, "seconds": round(seconds, 3), **said}


def _infra(request: BatchRequest, hello: Mapping[str, Any], why: str) -> Evaluation:
    return Evaluation(
        status=Status.INFRA,
        stage=Stage.NONE,
        fidelity=Fidelity(request.params.get("fidelity", Fidelity.SEARCH)),
        task_revision=request.subject["task"],
        device_class=str(hello["device_class"]),
        evaluator_version=str(hello["evaluator_version"]),
        feedback=why,
    )


async def _all(works: Iterable[Awaitable[None]]) -> None:
    """Do all at the same time; if one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
