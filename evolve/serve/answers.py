"""From a stored job to the answer that a client gets."""

import time

from evolve.core.evaluation import Evaluation, Status
from evolve.languages.registry import detect_language
from evolve.languages.torch import TORCH
from evolve.serve.jobs import Job
from evolve.serve.messages import JobAnswer, TaskAnswer, VerdictAnswer
from evolve.serve.service import Findings, Service
from operators.prompting.prompt_context import judged_text
from operators.prompting.templates import render_prompt
from operators.quoting import Quoted


def answer(service: Service, job: Job) -> JobAnswer:
    """The public state of a job."""
    findings, baseline = service.findings(job.revision), job.request["baseline"]
    found = None if job.verdict is None else Evaluation.from_json(job.verdict)
    judge = found or service.judge.known
    waited_until = job.started or job.finished or time.time()
    return JobAnswer(
        id=job.id,
        state=job.state,
        fault=job.fault,
        message=job.message,
        task=TaskAnswer(name=job.request["task"], revision=job.revision, weak=findings),
        baseline=baseline,
        verdict=None
        if found is None
        else verdict_answer(found, baseline, job.request["source"], findings),
        rewards=dict(job.rewards),
        evaluator_version=judge.evaluator_version,
        device_class=judge.device_class,
        cached=job.cached,
        attempts=job.attempts,
        queued_s=round(max(0.0, waited_until - job.submitted), 3),
        judged_s=round(job.finished - job.started, 3) if job.finished and job.started else None,
    )


def verdict_answer(
    evaluation: Evaluation, baseline: str, source: str, findings: Findings | None
) -> VerdictAnswer:
    """A verdict as clients get it.

    Args:
        evaluation: the verdict.
        baseline: of the speedup.
        source: the candidate's text.
        findings: null candidates that pass the task's check; None if it was not audited.
    """
    ratio = evaluation.ratios.get(baseline)
    prompt = judged_text(evaluation, baseline)
    return VerdictAnswer(
        status=evaluation.status,
        stage=int(evaluation.stage),
        fidelity=evaluation.fidelity,
        correct=evaluation.status in (Status.CORRECT, Status.TIMING_UNBOUNDED),
        custom=evaluation.custom,
        strict=evaluation.strict and not findings,
        suite=evaluation.suite,
        speedup=None if ratio is None else ratio.to_json(),
        times_ms={
            case.name: {side: time_ms.to_json() for side, time_ms in case.times_ms.items()}
            for case in evaluation.cases
        },
        labels=[[label.name, label.evidence] for label in evaluation.labels],
        feedback=evaluation.feedback,
        prompt=prompt,
        next_turn=next_turn(evaluation, prompt, source),
        device_time_s=evaluation.device_time_s,
    )


def next_turn(evaluation: Evaluation, prompt: Quoted, source: str) -> str:
    """The message that asks for the next version in a conversation, in the search's own words.

    Args:
        evaluation: of the version that was given last.
        prompt: its description.
        source: its text, which the conversation holds already.
    """
    kind = detect_language(source)
    wrong = evaluation.status is not Status.CORRECT
    job = render_prompt("repair") if wrong else render_prompt("rewrite_full", first=False)
    parts = (
        f"# Your last program\n\n{prompt}",
        job,
        render_prompt("answer_program", kernels="" if kind is TORCH else kind.title),
    )
    return "\n\n".join(parts)
