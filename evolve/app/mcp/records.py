"""Runs, programs and lineage of the database, and the documents of the knowledge base."""

from collections.abc import Mapping, Sequence
from typing import Any

from evolve.app.database import open_store
from evolve.app.library.winner import standalone, winner_of
from evolve.app.mcp.results import (
    Best,
    Document,
    Documents,
    Lineage,
    LineageStep,
    RunState,
    StepText,
)
from evolve.app.mcp.run_steps import archived_text, stored_verdict
from evolve.core.errors import UsageError
from evolve.core.lineage import Step
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.report.lineage import speedup
from evolve.report.text import one_line
from evolve.store import Store
from evolve.store.champion import best_path, champion

MOST_STEPS = 200  # of one answer: clients cap results
MOST_RUNS = 50
MOST_DOCUMENTS = 8
NOTE_CHARS = 300


def run_states(location: str) -> list[RunState]:
    """The newest runs; none while there is no database."""
    if not Store.exists(location):
        return []
    with open_store(location) as store:
        return [_state(store, run) for run in store.runs()[::-1][:MOST_RUNS]]


def run_state(location: str, run: str | None) -> RunState:
    """One run; the newest without a name."""
    with open_store(location) as store:
        return _state(store, store.run(run))


def best(location: str, run: str | None) -> Best:
    """The best program of a run.

    Raises:
        UsageError: no correct one has been timed yet.
    """
    with open_store(location) as store:
        row = store.run(run)
        winner = winner_of(store, row)
        return Best(
            run=row.name,
            step=winner.sequence,
            speedup=winner.ratio.to_json(),
            verified=winner.verified,
            source=standalone(store, row),
        )


def lineage(location: str, run: str | None, first: int, last: int | None) -> Lineage:
    """Steps of a run by their numbers; the newest ones if `last` is None and there are many."""
    with open_store(location) as store:
        row = store.run(run)
        end = store.next_sequence(row.id) if last is None else last + 1
        begin = max(first, end - MOST_STEPS) if last is None else first
        makers: dict[str, int] = {}
        steps = []
        for step in store.steps(row.id):
            if step.program is not None:
                makers.setdefault(step.program, step.sequence)
            if begin <= step.sequence < min(end, begin + MOST_STEPS):
                steps.append(_step(step, makers, row.baseline))
        return Lineage(run=row.name, steps=steps, line_to_best=best_path(store, row))


def step_text(location: str, run: str | None, sequence: int) -> StepText:
    """One step with its program.

    Raises:
        UsageError: there is no such step.
    """
    with open_store(location) as store:
        row = store.run(run)
        step = store.step(row.id, sequence)
        is_judged = store.evaluation(row.id, sequence) is not None
        return StepText(
            run=row.name,
            step=sequence,
            operator=step.operator,
            source=store.source(step.program) if step.program else None,
            assignment=dict(step.assignment),
            failure=step.failure,
            verdict=stored_verdict(store, row, sequence) if is_judged else None,
        )


def documents(folders: Sequence[str], words: str, diagnosis: Mapping[str, str]) -> Documents:
    """Documents that hold the words, or that fit a diagnosis.

    Raises:
        UsageError: both are given, or neither, or a value that no document can have.
    """
    from operators.knowledge import Diagnosis, load, rank, search
    from operators.knowledge.document import VALUES

    asked = {kind: value for kind, value in diagnosis.items() if value}
    if bool(words.split()) == bool(asked):
        raise UsageError("knowledge: give either words, or parts of a diagnosis such as error")
    for kind, value in asked.items():
        allowed = VALUES[kind]
        if allowed is not None and value not in allowed:
            raise UsageError(f"{kind}={value!r}: it is one of {', '.join(sorted(allowed))}")
    held = load(list(folders))
    found = search(held, words.split()) if words.split() else rank(held, Diagnosis(**asked))
    return Documents(documents=[_document(each) for _, each in list(found)[:MOST_DOCUMENTS]])


def document(folders: Sequence[str], id_: str) -> Documents:
    """One document with its text.

    Raises:
        UsageError: there is none of that id.
    """
    from operators.knowledge import load

    found = [each for each in load(list(folders)) if each.id == id_]
    if not found:
        raise UsageError(f"id {id_!r}: there is no such document; search by words instead")
    sources = [f"{source.title}: {source.url}" for source in found[0].sources]
    more = {"body": found[0].body, "sources": sources}
    return Documents(documents=[_document(found[0]).model_copy(update=more)])


def _document(found: Any) -> Document:
    tags = {kind: list(values) for kind, values in found.tags.items()}
    return Document(id=found.id, title=found.title, tags=tags, tested=str(found.tested))


def _state(store: RunStore, run: RunRow) -> RunState:
    progress, winner = store.progress(run.id), champion(store, run)
    return RunState(
        run=run.name,
        task=run.task.name,
        state=run.state,
        reason=run.reason,
        evaluations=progress.evaluations,
        wall_time_s=round(progress.wall_time_s, 1),
        usd=progress.usd,
        best=winner.ratio.to_json() if winner else None,
        verified=bool(winner and winner.verified),
    )


def _step(step: Step, makers: Mapping[str, int], baseline: str) -> LineageStep:
    ratio = speedup(step, baseline)
    outcome = str(step.status) if step.status else "not proposed" if step.failure else "open"
    return LineageStep(
        step=step.sequence,
        operator=step.operator,
        parents=[makers[parent] for parent in step.parents if parent in makers],
        program=step.program,
        status=outcome,
        speedup=ratio.to_json() if ratio else None,
        archived=archived_text(step.offer),
        note=one_line(step.failure or step.note, NOTE_CHARS),
    )
