"""The HTTP interface. `create_app` gives an ASGI application; the schema is `GET /openapi.json`."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse

import evolve
from evolve.core.errors import EvaluatorUnavailable, StoreError, UsageError
from evolve.serve.answers import answer
from evolve.serve.asgi import App
from evolve.serve.catalogue import Catalogue
from evolve.serve.guard import Guard
from evolve.serve.jobs import Job, State
from evolve.serve.kernelgym import GymApi
from evolve.serve.messages import (
    Batch,
    HealthAnswer,
    Id,
    JobAnswer,
    JobAnswers,
    ServiceAnswer,
    Submission,
    TasksAnswer,
    Wait,
    problems,
)
from evolve.serve.quota import OverQuota
from evolve.serve.service import Service
from evolve.serve.submissions import PinMismatch, QueueFull, SameId, accept

MAX_NAMED = 100  # characters of an unknown field's name
MAX_TOLD = 20  # of the faults of a request
OPEN_PATHS = ("/health", "/kernelgym/health", "/openapi.json")

WaitS = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for the end")]


def create_app(
    service: Service, catalogue: Catalogue, *, token: str | None, hosts: Collection[str]
) -> App:
    """The application over a service that has been started.

    Args:
        service: the judging service.
        catalogue: the tasks that requests may name.
        token: required in requests; None if all may ask.
        hosts: names by which the server may be asked; empty for any.
    """
    app = FastAPI(
        title="evolve serve",
        version=evolve.__version__,
        summary="Verdicts, times, feedback and rewards for kernels",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(Api(service, catalogue).router())
    app.include_router(GymApi(service, catalogue).router(), prefix="/kernelgym", tags=["KernelGYM"])
    for kind, status in _STATUS.items():
        app.add_exception_handler(kind, _handler(status))
    app.add_exception_handler(RequestValidationError, _explain)
    return Guard(app, token=token, hosts=hosts, open_paths=OPEN_PATHS)


class Api:
    """The operations of the native interface.

    Args:
        service: the judging service.
        catalogue: the tasks that requests may name.
    """

    def __init__(self, service: Service, catalogue: Catalogue) -> None:
        self._service = service
        self._catalogue = catalogue

    def router(self) -> APIRouter:
        router = APIRouter()
        unfinished: dict[int | str, dict[str, Any]] = {202: {"model": JobAnswer}}
        refused = problems(403, 409, 413, 422, 429, 503)
        router.post("/v1/jobs", responses=unfinished | refused)(self.submit)
        router.post("/v1/batches", responses=refused)(self.submit_batch)
        router.get("/v1/jobs/{job_id}", responses=unfinished | problems(404, 422, 503))(self.job)
        router.get("/v1/jobs/{job_id}/evaluation", responses=problems(404, 422, 503))(
            self.evaluation
        )
        router.post("/v1/wait", responses=problems(404, 413, 422, 503))(self.wait)
        router.get("/v1/tasks", responses=problems())(self.tasks)
        router.get("/v1/service", responses=problems(503))(self.about)
        router.get("/health", responses={503: {"model": HealthAnswer}})(self.health)
        router.get("/metrics", response_class=PlainTextResponse, responses=problems())(self.metrics)
        return router

    async def submit(
        self, submission: Submission, response: Response, wait_s: WaitS = 0
    ) -> JobAnswer:
        """Have a candidate judged; 202 if it is not over within `wait_s`."""
        (job,) = self._service.submit([accept(submission, self._catalogue)])
        if wait_s and not job.is_over:
            job = (await self._service.wait([job.id], wait_s))[job.id]
        return self._told(job, response)

    async def submit_batch(self, batch: Batch) -> JobAnswers:
        """Have several judged; they are taken all or none."""
        jobs = self._service.submit([accept(one, self._catalogue) for one in batch.jobs])
        return JobAnswers(jobs=[answer(self._service, job) for job in jobs])

    async def job(self, job_id: Id, response: Response, wait_s: WaitS = 0) -> JobAnswer:
        """Where a job stands, after `wait_s` or as soon as it is over."""
        found = await self._service.wait([job_id], wait_s)
        return self._told(_require(found, job_id), response)

    async def evaluation(self, job_id: Id) -> dict[str, Any]:
        """The whole verdict of a job that is done, raw samples included, to score it elsewhere."""
        job = _require(self._service.jobs.get([job_id]), job_id)
        if job.verdict is None:
            raise NoSuchJob(job_id)
        return dict(job.verdict)

    async def wait(self, wanted: Wait) -> JobAnswers:
        """Those of the named jobs that are over, as soon as there is one; none after `wait_s`."""
        found = await self._service.wait(wanted.ids, wanted.wait_s)
        jobs = [_require(found, id_) for id_ in dict.fromkeys(wanted.ids)]
        return JobAnswers(jobs=[answer(self._service, job) for job in jobs if job.is_over])

    async def tasks(self) -> TasksAnswer:
        """Names of the tasks that are here."""
        return TasksAnswer(tasks=self._catalogue.names)

    async def about(self) -> ServiceAnswer:
        """The judge's identity, which a client may pin."""
        judge, settings = self._service.judge.known, self._service.settings
        return ServiceAnswer(
            version=evolve.__version__,
            evaluator_version=judge.evaluator_version,
            device_class=judge.device_class,
            sandbox=self._service.sandbox,
            slots=judge.slots,
            rewards=sorted(self._service.rewards),
            references="any" if self._catalogue.any_reference else "known",
            limits={
                "queue": settings.queue,
                "queue_s": settings.queue_s,
                "attempts": settings.attempts,
            },
        )

    async def health(self, response: Response) -> HealthAnswer:
        """Whether candidates are being judged."""
        is_well = not (self._service.judge.trouble or self._service.trouble)
        response.status_code = 200 if is_well else 503
        return HealthAnswer(  # asked without a token: details are in the server's log
            status="healthy" if is_well else "unavailable",
            message="" if is_well else "see the server's log",
            queued=self._service.jobs.count(State.QUEUED),
            running=self._service.jobs.count(State.RUNNING),
        )

    async def metrics(self) -> str:
        """Counts since the start, in the text format of Prometheus."""
        jobs = self._service.jobs
        gauges = {state.value: float(jobs.count(state)) for state in _OPEN_STATES}
        return "\n".join(self._service.counters.lines(gauges)) + "\n"

    def _told(self, job: Job, response: Response) -> JobAnswer:
        response.status_code = 200 if job.is_over else 202
        return answer(self._service, job)


_OPEN_STATES = (State.QUEUED, State.RUNNING)


class NoSuchJob(Exception):
    """No job of this id was submitted, or it has been forgotten."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r} with what was asked for")


def _require(jobs: Mapping[str, Job], job_id: str) -> Job:
    if job_id not in jobs:
        raise NoSuchJob(job_id)
    return jobs[job_id]


_STATUS: dict[type[Exception], int] = {
    NoSuchJob: 404,
    PinMismatch: 409,
    SameId: 409,
    UsageError: 422,
    OverQuota: 403,
    QueueFull: 429,
    EvaluatorUnavailable: 503,
    StoreError: 503,
}


def _handler(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(_: Request, error: Exception) -> Response:
        retry = {"Retry-After": str(error.retry_after_s)} if isinstance(error, QueueFull) else {}
        return JSONResponse({"detail": str(error)}, status_code=status, headers=retry)

    return handle


async def _explain(_: Request, error: Exception) -> Response:
    """The first faults of a request, without its content, which may be long."""
    assert isinstance(error, RequestValidationError)
    told = [
        {
            "type": fault["type"],
            "loc": [part[:MAX_NAMED] if isinstance(part, str) else part for part in fault["loc"]],
            "msg": fault["msg"],
        }
        for fault in error.errors()[:MAX_TOLD]
    ]
    return JSONResponse({"detail": told}, status_code=422)
