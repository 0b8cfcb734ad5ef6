"""One program for the whole evaluation service, or its verdict in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve.app.database import open_store
from evolve.app.device import require_runnable, start_local
from evolve.app.frontend import Frontend
from evolve.core.devices import device_kind
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import EvaluationRequest, Evaluator
from evolve.core.source.tunables import render
from evolve.report.audit import Findings, findings_of
from evolve.tasks import find_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a program is judged: `device` is `cpu` or `cuda`; `python` an interpreter."""

    device: str
    python: str | None = None
    sandbox_require: str = "none"
    sandbox_read: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An evaluation, the findings of its task's audit, and whether a database knew both.

    `conditions` are sentences about effects and modes that were judged; none of a known verdict.
    """

    evaluation: Evaluation
    findings: Findings
    known: bool
    conditions: Sequence[str] = ()


def request_for(
    source: str,
    task: str,
    place: Place,
    *,
    fidelity: str,
    baseline: str,
    size: str | None,
    precision: str,
    accumulation: str,
) -> EvaluationRequest:
    """The request to the judge about a program.

    Raises:
        UsageError: no such task or baseline.
    """
    from evolve.app.inputs import read_baseline

    found = find_task(
        task,
        size=size or device_kind(place.device).size,
        precision=precision,
        accumulation=accumulation,
    )
    return EvaluationRequest(
        task=found,
        instance=instance_digest(Program(source).digest, {}),
        source=source,
        fidelity=Fidelity(fidelity),
        opponents=read_baseline(baseline, place.device),
    )


def recorded(
    path: str, run_name: str | None, sequence: int
) -> tuple[EvaluationRequest, Evaluation | None]:
    """The request for a stored step, and the verdict on record.

    Raises:
        UsageError: there is no such step, or it made no program.
    """
    with open_store(path) as store:
        run = store.run(run_name)
        step = store.step(run.id, sequence)
        if step.program is None:
            raise UsageError(f"step {run.name}:{sequence} made no program: {step.failure}")
        request = EvaluationRequest(
            task=run.task,
            instance=instance_digest(step.program, step.assignment),
            source=render(store.source(step.program), step.assignment),
            fidelity=step.fidelity,
            opponents=dict(run.config.get("opponents", {})),
        )
        return request, store.evaluation(run.id, sequence)


async def judge(
    request: EvaluationRequest,
    place: Place,
    frontend: Frontend,
    store: str | None = None,
    *,
    name: str = "source",
) -> Verdict:
    """Judge a program, and audit its task first.

    Args:
        request: the program and its task.
        place: where.
        frontend: shows progress.
        store: a database that may know the verdict; None: it is judged in any case.
        name: of the program in messages.

    Raises:
        UsageError: a language, device or sandbox that this host does not offer, or a bad task.
        EvaluatorUnavailable: the judge does not come up, or ends.
    """
    require_runnable(request.source, name, place.device, place.python)
    with frontend.doing("starting the judge", plain=False):
        evaluator = await start_local(
            place.device,
            slots=1,
            python=place.python,
            sandbox_require=place.sandbox_require,
            sandbox_read=place.sandbox_read,
        )
    try:
        if store and (found := _known(request, store, evaluator)):
            return found
        with frontend.doing(f"auditing the task {request.task.name}", plain=False):
            findings = await evaluator.audit(request.task)  # first: it names errors of the task
            conditions = await evaluator.conditions(request.task)
        with frontend.doing(lambda: evaluator.phase_of(request.instance) or "judging", plain=False):
            evaluation = await evaluator.evaluate(request)
        return Verdict(evaluation=evaluation, findings=findings, known=False, conditions=conditions)
    finally:
        await evaluator.close()


def _known(request: EvaluationRequest, path: str, evaluator: Evaluator) -> Verdict | None:
    """The verdict and the findings of the task's audit, if the database has them."""
    if request.opponents or request.fidelity is Fidelity.VERIFY or not Path(path).is_file():
        return None
    with open_store(path) as store:
        found = store.cached(
            request.instance,
            request.task.revision,
            evaluator.device_class,
            evaluator.evaluator_version,
            request.fidelity,
        )
        found = None if found is None or found.early_stopped else found
        audits = [
            findings_of(run.config)
            for run in store.runs()
            if run.task.revision == request.task.revision and run.config.get("audit") is not None
        ]
    if found is None or not audits:
        return None
    return Verdict(evaluation=found, findings=audits[0], known=True)
