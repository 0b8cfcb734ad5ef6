"""Runs, steps and documents as results of tools."""

from collections.abc import Mapping
from typing import Any

from evolve.app.database import open_store
from evolve.app.mcp.results import Document, LineageStep, RunState
from evolve.app.mcp.run_steps import archived_text
from evolve.core.lineage import Step
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.report.lineage import speedup
from evolve.report.text import one_line
from evolve.store import Store
from evolve.store.champion import champion

MOST_RUNS = 50
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


def document_of(found: Any) -> Document:
    """A document of the knowledge base without its text."""
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


def lineage_step(step: Step, makers: Mapping[str, int], baseline: str) -> LineageStep:
    """A step; `makers` are the steps that made programs first."""
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
