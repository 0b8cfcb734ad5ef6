"""The interface of KernelGYM (hkust-nlp/KernelGYM, February 2026) over the same service.

Paths and fields are those of `kernelgym/server/api` there, which `drkernel`'s reward client asks:
`POST /evaluate`, `GET /status/ID`, `GET /results/ID`, `GET /health`. Its fields about trials,
back ends, timeouts and devices are taken and have no effect: this judge decides how a candidate is
judged. After 429 and 503 that client waits and posts again, its one way to get over an
infrastructure fault.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from evolve.core.evaluation import Evaluation, Stage, Status
from evolve.core.measurement import Ratio
from evolve.serve.catalogue import Catalogue
from evolve.serve.jobs import ENDED_SERVERS, Fault, Job, State
from evolve.serve.messages import MAX_TEXT, Id, Submission, problems
from evolve.serve.service import Service
from evolve.serve.submissions import accept
from evolve.trajectories.rewards import worth

MAX_WAIT_S = 60.0  # that a request is held; the client asks `/status` then
MAX_TRIES = 20
"""Of a candidate under which the judge itself fails. Its client may ask without end, and one that
ends every judge would hold up a training for good."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
_BASELINES = {"torch_compile": "compile", "torch.compile": "compile"}
_STATUS = {State.QUEUED: "pending", State.RUNNING: "processing", State.DONE: "completed"}
_CODES = {
    Status.INVALID_INTERFACE: "VALIDATION_ERROR",
    Status.COMPILE_ERROR: "COMPILATION_ERROR",
    Status.TIMEOUT: "TIMEOUT_ERROR",
    Status.OOM: "RESOURCE_ERROR",
    Status.RUNTIME_EXCEPTION: "RUNTIME_ERROR",
    Status.ILLEGAL_ACCESS: "RUNTIME_ERROR",
    Status.ASSERT: "RUNTIME_ERROR",
    Status.KILLED: "RUNTIME_ERROR",
}


class GymRequest(BaseModel):
    """The request of its clients; further fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    task_id: Id
    reference_code: Annotated[str, StringConstraints(min_length=10, max_length=MAX_TEXT - 200)]
    kernel_code: Annotated[str, StringConstraints(min_length=10)]
    entry_point: Name = "Model"
    reference_backend: str | None = None
    force_refresh: bool = False


class GymBatch(BaseModel):
    """Several of them."""

    model_config = ConfigDict(extra="ignore")

    batch_id: str
    tasks: Annotated[list[GymRequest], Field(min_length=1, max_length=100)]


class GymResult(BaseModel):
    """KernelGYM's `EvaluationResponse`, with runtimes in milliseconds."""

    task_id: str
    status: str
    compiled: bool | None = None
    correctness: bool | None = None
    decoy_kernel: bool | None = None
    reference_runtime: float | None = None
    kernel_runtime: float | None = None
    speedup: float | None = None
    metadata: dict[str, Any] | None = None
    error_message: str | None = None
    error_code: str | None = None
    submitted_at: str | None = None
    completed_at: str | None = None
    processing_time: float | None = None


class GymBatchResult(BaseModel):
    """KernelGYM's `BatchEvaluationResponse`."""

    batch_id: str
    total_tasks: int
    completed_tasks: int
    failed_tasks: int
    results: list[GymResult]
    batch_status: str


class GymStatus(BaseModel):
    """KernelGYM's `TaskStatusResponse`, with the message that its client looks for."""

    task_id: str
    status: str
    queue_position: int | None = None
    error_message: str | None = None


class GymHealth(BaseModel):
    """KernelGYM's `SystemHealthResponse`; its trainer starts where `status` is `healthy`."""

    status: str
    timestamp: str
    gpu_status: dict[str, Any]
    queue_status: dict[str, Any]
    memory_usage: dict[str, Any]
    active_tasks: int
    total_processed: int
    uptime: float


class GymApi:
    """Its operations, to be mounted where its clients' `server_url` points.

    Args:
        service: the judging service.
        catalogue: the tasks whose references are known.
    """

    def __init__(self, service: Service, catalogue: Catalogue) -> None:
        self._service = service
        self._catalogue = catalogue
        self._began = time.monotonic()

    def router(self) -> APIRouter:
        router = APIRouter(responses=problems(404, 409, 413, 422, 429, 503))
        router.post("/evaluate")(self.evaluate)
        router.post("/evaluate/batch")(self.evaluate_batch)
        router.get("/status/{task_id}")(self.status)
        router.get("/results/{task_id}")(self.results)
        router.get("/health")(self.health)
        return router

    async def evaluate(self, request: GymRequest) -> GymResult:
        """Judge a kernel; answered when it is over, or after a minute with where it stands.

        If there is none, through no fault of the kernel's, the answer is 503: its client comes
        back with the same `task_id` then, and the kernel is judged again.
        """
        (id_,) = self._take([request])
        job = (await self._service.wait([id_], MAX_WAIT_S))[id_]
        self._require_settled([job])
        return self._result(job)

    async def evaluate_batch(self, batch: GymBatch) -> GymBatchResult:
        """Judge several; answered when all are over, 503 as for one."""
        ids = self._take(batch.tasks)
        jobs: dict[str, Job] = {}
        while open_ids := {*ids} - jobs.keys():
            found = await self._service.wait(sorted(open_ids), MAX_WAIT_S)
            jobs |= {id_: job for id_, job in found.items() if job.is_over}
        self._require_settled(jobs.values())
        results = [self._result(jobs[id_]) for id_ in ids]
        failed = sum(result.status == "failed" for result in results)
        return GymBatchResult(
            batch_id=batch.batch_id,
            total_tasks=len(results),
            completed_tasks=len(results) - failed,
            failed_tasks=failed,
            results=results,
            batch_status="completed",
        )

    async def status(self, task_id: Id) -> GymStatus:
        """The state of a kernel; one that is to be judged again is queued again."""
        job = self._find(task_id)
        if self._unsettled(job):
            job = self._service.renew(job)
        result = self._result(job)
        waiting = job.state is State.QUEUED
        return GymStatus(
            task_id=task_id,
            status=result.status,
            queue_position=self._service.jobs.ahead(job) + 1 if waiting else None,
            error_message=result.error_message,
        )

    async def results(self, task_id: Id) -> GymResult:
        """The result of a kernel."""
        job = self._find(task_id)
        if not job.is_over or self._unsettled(job):
            raise HTTPException(404, f"Task {task_id} has no result yet")
        return self._result(job)

    async def health(self) -> GymHealth:
        """Whether kernels are being judged."""
        judge, jobs = self._service.judge, self._service.jobs
        running = jobs.count(State.RUNNING)
        return GymHealth(
            status="unhealthy" if judge.trouble else "healthy",
            timestamp=_time_text(time.time()),
            gpu_status={judge.known.device_class: {"available": not judge.trouble}},
            queue_status={"pending": jobs.count(State.QUEUED), "processing": running},
            memory_usage={},
            active_tasks=running,
            total_processed=sum(self._service.counters.verdicts.values()),
            uptime=round(time.monotonic() - self._began, 1),
        )

    def _take(self, requests: Sequence[GymRequest]) -> list[str]:
        """Submit; unsettled jobs under the same ids are judged again."""
        accepted = [accept(_submission(one), self._catalogue) for one in requests]
        for job in self._service.submit(accepted):
            if self._unsettled(job):
                self._service.renew(job)
        return [one.id for one in accepted]

    def _require_settled(self, jobs: Iterable[Job]) -> None:
        if why := next(filter(None, map(self._unsettled, jobs)), ""):
            raise HTTPException(503, f"{why}; ask again", {"Retry-After": "1"})

    def _unsettled(self, job: Job) -> str:
        """Why a job that is over is to be judged again; empty if it is not.

        Its client has no way to leave a row out: it takes `failed` for its penalty, and a kernel
        without a time for one without a speedup.
        """
        if job.fault in (Fault.INFRA, Fault.EXPIRED):
            hopeless = job.attempts >= MAX_TRIES or job.message.startswith(ENDED_SERVERS)
            return "" if hopeless else f"{job.fault}: {job.message}"
        tried = job.attempts >= self._service.settings.attempts
        if tried or not _is_untimed(job) or self._service.findings(job.revision):
            return ""
        return "it is correct, and could not be timed"

    def _result(self, job: Job) -> GymResult:
        return _result(job, is_weak=bool(self._service.findings(job.revision)))

    def _find(self, task_id: str) -> Job:
        job = self._service.jobs.get([task_id]).get(task_id)
        if job is None:
            raise HTTPException(404, f"Task {task_id} not found")
        return job


def _submission(request: GymRequest) -> Submission:
    """Its classes are called after the entry point, those here after `Model`."""
    reference, kernel, name = request.reference_code, request.kernel_code, request.entry_point
    if name != "Model":
        reference = f"{reference}\n\nModel = {name}\n"
        kernel = f"{kernel}\n\nModelNew = {name}New\n"
    is_read = len(kernel) <= MAX_TEXT  # as a reply it is a failure of the kernel's, else a mistake
    return Submission(
        id=request.task_id,
        reference=reference,
        source=kernel if is_read else None,
        completion=None if is_read else kernel,
        baseline=_BASELINES.get(request.reference_backend or "", "eager"),
        fresh=request.force_refresh,
    )


def _result(job: Job, *, is_weak: bool) -> GymResult:
    """The state of a job, in its terms; a kernel that does not compile has `failed` there.

    So has everything on a weak task: if being correct means nothing, all get the same.
    """
    base = GymResult(
        task_id=job.id,
        status=_STATUS.get(job.state, "failed"),
        submitted_at=_time_text(job.submitted),
        completed_at=None if job.finished is None else _time_text(job.finished),
        processing_time=job.finished - job.started if job.finished and job.started else None,
    )
    if job.fault is not None:
        expired = job.fault is Fault.EXPIRED
        base.error_message = f"{job.fault}: {job.message}"
        base.error_code = "TIMEOUT_ERROR" if expired else "SYSTEM_ERROR"
        base.metadata = {"fault": job.fault.value}
        return base
    if job.verdict is None:
        return base
    if is_weak:
        base.status, base.error_code = "failed", "SYSTEM_ERROR"
        base.error_message = "weak_task: null candidates pass its check; leave it out"
        base.metadata = {"fault": "weak_task"}
        return base
    verdict = Evaluation.from_json(job.verdict)
    return base.model_copy(update=_fields(verdict, job.request["baseline"]))


def _is_untimed(job: Job) -> bool:
    """Whether a job's candidate is correct by kernels of its own, without a known speed."""
    if job.verdict is None:
        return False
    verdict = Evaluation.from_json(job.verdict)
    correct = verdict.status in (Status.CORRECT, Status.TIMING_UNBOUNDED)
    return correct and verdict.custom is not False and job.request["baseline"] not in verdict.ratios


def _fields(verdict: Evaluation, baseline: str) -> dict[str, Any]:
    correct = verdict.status in (Status.CORRECT, Status.TIMING_UNBOUNDED)
    compiled = correct or verdict.stage >= Stage.COMPILE
    ratio = verdict.ratios.get(baseline)
    own, reference = _runtime(verdict, "candidate"), _runtime(verdict, baseline)
    return {
        "status": "completed" if compiled else "failed",
        "compiled": compiled,
        "correctness": correct,
        "decoy_kernel": verdict.status is Status.HACK or (correct and verdict.custom is False),
        "reference_runtime": reference,
        "kernel_runtime": own,
        "speedup": worth(ratio) or 0.0,  # as there, if it could not be measured
        "metadata": _metadata(verdict, ratio, own),
        "error_message": None if correct else f"{verdict.status}: {verdict.feedback}",
        "error_code": None if correct else _CODES.get(verdict.status, "CORRECTNESS_ERROR"),
    }


def _runtime(verdict: Evaluation, side: str) -> float:
    """Milliseconds over all timed cases; 0 if none was."""
    times = (case.times_ms.get(side) for case in verdict.cases)
    return sum(time_ms.value for time_ms in times if time_ms is not None)


def _metadata(verdict: Evaluation, ratio: Ratio | None, own_ms: float) -> dict[str, Any]:
    """Among others the two times whose quotient its clients take for coverage."""
    found: dict[str, Any] = {
        "device": verdict.device_class,
        "evaluator_version": verdict.evaluator_version,
        "status": verdict.status.value,
        "feedback": verdict.feedback,
        "labels": [label.name for label in verdict.labels],
        "speedup_interval": None if ratio is None else ratio.to_json(),
    }
    coverage = verdict.descriptors.get("coverage")
    if isinstance(coverage, (int, float)) and own_ms:
        found["total_kernel_run_time_in_profiling_us"] = 1000 * own_ms
        found["custom_kernel_cuda_time_in_profiling_us"] = 1000 * own_ms * coverage
    return found


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
