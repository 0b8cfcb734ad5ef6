"""The search's side of a batch: requests written to a file, verdicts read from its answers."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evolve.core.compiled import Compiled, read_compiled
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation
from evolve.core.protocols import EvaluationRequest
from evolve.core.reference import ReferenceCost
from evolve.core.task import Task
from evolve.evaluation.checked import read_evaluation
from evolve.worker.service.batch_files import Answer, BatchRequest, read_answers, request_lines

EVALUATE, AUDIT, COMPILED, REFERENCE = "evaluate", "audit", "compiled", "reference"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An evaluation that came back: its id, and its place in the file."""

    id: str
    answer: Answer
    evaluation: Evaluation

    def differs_from(self, asked: EvaluationRequest) -> str:
        """How the verdict differs from the request, in words; empty if it fits.

        Opponents that were timed along beside the request's own do no harm.
        """
        wanted, about = as_batch(self.id, asked).subject, self.answer.subject
        if not self.evaluation.task_revision == about.get("task") == wanted["task"]:
            return "another revision of the task"
        if about.get("source") != wanted["source"]:
            return "another source"
        if not self.evaluation.fidelity == about.get("fidelity") == wanted["fidelity"]:
            return f"fidelity {self.evaluation.fidelity}, and {asked.fidelity} was asked for"
        timed_along = about.get("opponents")
        timed_along = timed_along if isinstance(timed_along, dict) else {}
        if any(timed_along.get(name) != wanted["opponents"][name] for name in wanted["opponents"]):
            return "other opponents"
        return ""


@dataclass(slots=True)
class Verdicts:
    """The content of a folder of answers.

    Attributes:
        verdicts: evaluations, those of one request in the order of the shards.
        audits: what audits found, by task revision.
        compiled: the compiler's code for tasks, or why there is none, by revision and variant.
        references: costs of references, by task revision.
        refused: requests that cannot be judged as they are, with the reason, by id.
        problems: a sentence per line or answer that cannot be used.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    audits: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    compiled: dict[str, dict[str, Compiled | str]] = field(default_factory=dict)
    references: dict[str, ReferenceCost] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def as_batch(name: str, request: EvaluationRequest) -> BatchRequest:
    """The request as a batch carries it. Seeds of the task stay: they are the search's."""
    return BatchRequest(
        id=name,
        method=EVALUATE,
        params={
            "task": _judged(request.task),
            "source": request.source,
            "fidelity": request.fidelity.value,
            "opponents": dict(request.opponents),
            "target_speedups": dict(request.target_speedups),
        },
    )


def audit_request(task: Task) -> BatchRequest:
    """Ask which null candidates the task cannot tell from a kernel."""
    return BatchRequest(id=f"audit:{task.revision}", method=AUDIT, params={"task": _judged(task)})


def reference_request(task: Task) -> BatchRequest:
    """Ask for the cost of the reference on the device, by operation."""
    return BatchRequest(
        id=f"reference:{task.revision}", method=REFERENCE, params={"task": _judged(task)}
    )


def compiled_request(task: Task, variants: Sequence[str]) -> BatchRequest:
    """Ask for the compiler's code of the reference under these variants."""
    params = {"task": _judged(task), "variants": list(variants)}
    return BatchRequest(id=f"compiled:{task.revision}", method=COMPILED, params=params)


def _judged(task: Task) -> dict[str, object]:
    return replace(task, seeds=(), compiled=()).to_json()


def write_requests(path: Path, requests: Iterable[BatchRequest]) -> None:
    """Write the file whole, or not at all.

    Raises:
        UsageError: it cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.writelines(request_lines(requests))
            stream.flush()
            os.fsync(fd)
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def read_verdicts(path: Path) -> Verdicts:
    """Read what `python -m evolve.worker batch` left; nothing in it is taken on trust.

    Raises:
        UsageError: there is no such file or folder.
    """
    answers = read_answers(path)
    found = Verdicts(problems=list(answers.problems))
    for record in answers.records.values():
        given = [answer for answer in record.answers if answer.final]
        results = [answer for answer in given if answer.error is None]
        for answer in results:
            if problem := _take(found, answer):
                found.problems.append(f"{answer.where}: {problem}")
        if given and not results:
            found.refused[given[0].id] = (given[0].error or {})["message"]
    return found


def _take(found: Verdicts, answer: Answer) -> str:
    """Add an answer; returns the fault in it."""
    method = answer.subject.get("method")
    try:
        if method == EVALUATE:
            evaluation = read_evaluation(answer.result)
            found.verdicts.append(Verdict(answer.id, answer, evaluation))
        elif method == AUDIT:
            found.audits[answer.subject["task"]] = [
                {name: str(finding[name]) for name in ("name", "passed_by", "detail")}
                for finding in answer.result
            ]
        elif method == REFERENCE:
            found.references[answer.subject["task"]] = ReferenceCost.from_json(answer.result)
        elif method == COMPILED:
            found.compiled.setdefault(answer.subject["task"], {}).update(
                read_compiled(answer.result)
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"the answer to {answer.id} is damaged: {error}"
    return ""
