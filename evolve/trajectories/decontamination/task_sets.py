"""A folder of modules becomes a set of tasks to train on; unsound tasks are left out.

Files are read as text here. They are executed by the workers, which judge tasks anyway.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from evolve.core.errors import UsageError
from evolve.core.source.normalise import normalised_digest
from evolve.core.task import Task
from evolve.tasks import NoTaskError, find_task
from evolve.trajectories.decontamination.exclusions import Reason, Rules
from evolve.trajectories.decontamination.graphs import Tracer


class Outcome(StrEnum):
    """The fate of a file."""

    SOUND = "sound"
    NO_TASK = "no task"  # no class Model: a helper, a test, ...
    BROKEN = "broken"
    WEAK = "weak"  # an answer that needs no work passes
    DUPLICATE = "duplicate"
    HELD_OUT = "held out"
    LICENCE = "licence forbids training"
    LICENCE_NOT_NAMED = Reason.LICENCE_NOT_NAMED.value
    KEY = "holds a key"


@dataclass(frozen=True, slots=True)
class Finding:
    """A file with its findings.

    `signature` describes the inputs, if it was audited; `step_id` names its row, if it has one.
    """

    path: str
    revision: str
    outcome: Outcome
    detail: str = ""
    signature: str | None = None
    step_id: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task of the folder. `path` is relative to it."""

    path: str
    task: Task


class Auditor(Protocol):
    """The executor of task files: a worker with the audit of `evolve.evaluation`."""

    async def audit(self, task: Task) -> list[dict[str, str]]: ...


def read_folder(
    folder: Path, read: Callable[[str], Task] = find_task
) -> tuple[list[Candidate], list[Finding]]:
    """The tasks of a folder and its sub-folders by path, and the reasons against the other files.

    Nothing is executed. Of files that differ in layout and comments only the first stays.

    Raises:
        UsageError: there is no such folder, or no Python file in it.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; name a folder of task modules")
    files = sorted(path for path in folder.rglob("*.py") if not _hidden(path.relative_to(folder)))
    if not files:
        raise UsageError(f"{folder} holds no Python file; name a folder of task modules")
    candidates: dict[str, Candidate] = {}
    findings: list[Finding] = []
    for file in files:
        path = file.relative_to(folder).as_posix()
        try:
            task = read(file.as_posix())
        except NoTaskError:
            findings.append(Finding(path, "", Outcome.NO_TASK))
            continue
        except UsageError as error:
            findings.append(Finding(path, "", Outcome.BROKEN, str(error)))
            continue
        if "class Model" not in task.source:
            findings.append(Finding(path, task.revision, Outcome.NO_TASK))
            continue
        first = candidates.setdefault(normalised_digest(task.source), Candidate(path, task))
        if first.path != path:
            findings.append(
                Finding(path, task.revision, Outcome.DUPLICATE, f"same text as {first.path}")
            )
    return list(candidates.values()), findings


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "__")) for part in path.parts)


class Journal:
    """Findings that survive a kill: one JSON line each, appended as they are made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[tuple[str, str], Finding] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                finding = Finding(**json.loads(line))
            except ValueError:
                continue  # cut off by the kill
            found = asdict(finding) | {"outcome": Outcome(finding.outcome)}
            self.known[finding.path, finding.revision] = Finding(**found)

    def add(self, finding: Finding) -> None:
        self.known[finding.path, finding.revision] = finding
        with self._path.open("ab") as file:
            file.write(json.dumps(asdict(finding)).encode() + b"\n")


async def audit_all(
    candidates: Sequence[Candidate],
    auditors: Sequence[Auditor],
    journal: Journal,
    tell: Callable[[Finding], None],
) -> list[Finding]:
    """Every task audited and traced, in order; one at a time by each auditor.

    A worker that ends or hangs does so because of its task, so it never has two. Findings that the
    journal has are not made again.

    Raises:
        EvaluatorUnavailable: an auditor cannot go on.
    """
    waiting = iter(
        [one for one in candidates if (one.path, one.task.revision) not in journal.known]
    )

    async def work(auditor: Auditor) -> None:
        with Tracer() as tracer:
            for candidate in waiting:
                finding = await _examine(candidate, auditor, tracer)
                journal.add(finding)
                tell(finding)

    await asyncio.gather(*map(work, auditors))
    return [journal.known[one.path, one.task.revision] for one in candidates]


async def _examine(candidate: Candidate, auditor: Auditor, tracer: Tracer) -> Finding:
    path, revision = candidate.path, candidate.task.revision
    try:
        weaknesses = await auditor.audit(candidate.task)
    except UsageError as error:
        return Finding(path, revision, Outcome.BROKEN, str(error))
    if weaknesses:
        passed = ", ".join(dict.fromkeys(one["name"] for one in weaknesses))
        return Finding(path, revision, Outcome.WEAK, f"passed by: {passed}")
    signature = await asyncio.to_thread(tracer.signature, candidate.task)
    return Finding(path, revision, Outcome.SOUND, signature=signature)


def without_copies(
    findings: Iterable[Finding], tasks: Mapping[str, Task], tracer: Tracer
) -> Iterator[Finding]:
    """The findings; a sound task that computes the same as an earlier one is a duplicate of it.

    Args:
        findings: by path.
        tasks: by path.
        tracer: traces those whose signatures agree.
    """
    first: dict[str, list[str]] = {}
    for finding in findings:
        if finding.outcome is not Outcome.SOUND or finding.signature is None:
            yield finding
            continue
        alike = first.setdefault(finding.signature, [])
        task = tasks[finding.path]
        twin = next((path for path in alike if tracer.same(tasks[path], task)), None)
        if twin is None:
            alike.append(finding.path)
            yield finding
        else:
            yield replace(finding, outcome=Outcome.DUPLICATE, detail=f"computes the same as {twin}")


def by_rules(
    candidates: Iterable[Candidate], rules: Rules, tracer: Tracer | None
) -> Iterator[Finding]:
    """The tasks that may not be trained on."""
    outcomes = {
        Reason.HELD_OUT: Outcome.HELD_OUT,
        Reason.LICENCE: Outcome.LICENCE,
        Reason.LICENCE_NOT_NAMED: Outcome.LICENCE_NOT_NAMED,
        Reason.KEY: Outcome.KEY,
    }
    for candidate in candidates:
        if (found := rules.of_task(candidate.task, tracer)) is not None:
            outcome, revision = outcomes[found.reason], candidate.task.revision
            yield Finding(candidate.path, revision, outcome, found.detail)


def count(findings: Iterable[Finding]) -> dict[Outcome, int]:
    """How many files ended how, in the order of `Outcome`."""
    counts = Counter(finding.outcome for finding in findings)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}
