"""The judging service behind tools: started by the first call that needs it."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from evolve.app.mcp.budget import Budget
from evolve.app.mcp.results import Verdict
from evolve.core.errors import UsageError
from evolve.core.protocols import Evaluator
from evolve.serve.answers import answer
from evolve.serve.catalogue import Catalogue
from evolve.serve.jobs import HeldElsewhere, Job, Jobs, State
from evolve.serve.messages import Submission, VerdictAnswer
from evolve.serve.service import Service
from evolve.serve.submissions import accept

START_S = 40.0  # that a call waits for the judge; clients cut calls at 60 s
MOST_FILES = 16  # of jobs: as many servers with one configuration at a time

_STATES: Mapping[State, Literal["waiting", "judging", "done", "failed"]] = {
    State.QUEUED: "waiting",
    State.RUNNING: "judging",
    State.DONE: "done",
    State.FAILED: "failed",
}


class LazyJudge:
    """A service that starts when it is first needed: a client starts many servers in vain.

    Args:
        make: the service, not started yet.
    """

    def __init__(self, make: Callable[[], Service]) -> None:
        self._make = make
        self._service: Service | None = None
        self._starting: asyncio.Task[Service] | None = None
        self._running: asyncio.Task[None] | None = None

    async def service(self, wait_s: float | None = START_S) -> Service:
        """The service, once its judge answers.

        Raises:
            EvaluatorUnavailable: the judge does not come up.
            UsageError: it is still starting after `wait_s` (None waits for it), or the device is
                not to be had.
        """
        runs = self._running is not None and not self._running.done()
        if self._starting is None or (self._starting.done() and not runs):
            self._starting = asyncio.create_task(self._start())
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(self._starting)
        except TimeoutError:
            raise UsageError(
                "the judge is still starting, which can take a minute; nothing was submitted, "
                "make the same call again"
            ) from None

    async def evaluator(self) -> Evaluator:
        """The judge itself, however long it takes to start."""
        return await (await self.service(wait_s=None)).judge.ready()

    async def give_up(self, evaluator: Evaluator, why: str) -> None:
        """Start another judge instead of one that does not answer."""
        await (await self.service()).judge.give_up(evaluator, why)

    async def close(self) -> None:
        """End the judge; jobs under way are the next server's."""
        for task in (self._starting, self._running):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._service is not None:
            await self._service.close()

    async def _start(self) -> Service:
        if self._service is not None:
            await self._service.close()
        self._service = service = self._make()
        await service.start()
        self._running = asyncio.create_task(service.run())
        return service


class Submissions:
    """Candidates that belong to no run.

    Args:
        judge: judges them.
        catalogue: the tasks that they may name.
        budget: limits their number.
    """

    def __init__(self, judge: LazyJudge, catalogue: Catalogue, budget: Budget) -> None:
        self._judge = judge
        self._catalogue = catalogue
        self._budget = budget

    async def submit(self, fields: Mapping[str, Any]) -> Verdict:
        """Have a candidate judged; the fields are those of `Submission`.

        Raises:
            QueueFull, PinMismatch, SameId, UsageError: it is not taken.
        """
        service = await self._judge.service()
        try:
            submission = Submission.model_validate(dict(fields))
        except ValidationError as error:
            raise UsageError("; ".join(_fault(each) for each in error.errors())) from None
        accepted = accept(submission, self._catalogue)
        if known := service.jobs.get([accepted.id]):
            [job] = service.submit([accepted])  # refuses an id that stands for something else
            return self._verdict(service, known[job.id])
        self._budget.take("verdicts", 1)
        is_judged = False
        try:
            [job] = service.submit([accepted])
            is_judged = not job.is_over  # else the verdict was known, or there was no program
        finally:
            self._budget.give_back("verdicts", 0 if is_judged else 1)
        return self._verdict(service, job)

    async def verdict(self, ticket: str, wait_s: float) -> Verdict:
        """Where a submission stands.

        Raises:
            UsageError: there is no such submission.
        """
        service = await self._judge.service()
        found = await service.wait([ticket], wait_s)
        if ticket not in found:
            raise UsageError(
                f"ticket {ticket!r}: nothing was submitted under it here, or it is forgotten; "
                "submit the candidate again"
            )
        return self._verdict(service, found[ticket])

    def _verdict(self, service: Service, job: Job) -> Verdict:
        found = answer(service, job)
        return Verdict(
            ticket=job.id,
            state=_STATES[job.state],
            message=f"{found.fault}: {found.message}" if found.fault else found.message,
            judge=f"{found.device_class} {found.evaluator_version}",
            verdicts_left=self._budget.left("verdicts"),
            **({} if found.verdict is None else verdict_fields(found.verdict)),
        )


def verdict_fields(found: VerdictAnswer) -> dict[str, Any]:
    """The fields of a verdict that a client of tools is told."""
    names = ("status", "correct", "strict", "speedup", "times_ms", "labels")
    return {name: getattr(found, name) for name in names} | {"feedback": found.prompt}


def free_jobs(first: Path) -> Jobs:
    """The file of jobs, or, where another server holds it, the next one: `mcp-2.db`, ..."""
    path = first
    for number in range(2, MOST_FILES + 1):
        try:
            return Jobs(path)
        except HeldElsewhere:
            path = first.with_name(f"{first.stem}-{number}{first.suffix}")
    return Jobs(path)


def _fault(error: Mapping[str, Any]) -> str:
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else str(error["msg"])
