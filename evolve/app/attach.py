"""A stored run for a moment: for verbs that ask or tell, and judge nothing themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

from evolve.app import components
from evolve.app.config.upgrade import completed
from evolve.app.device import kind_of
from evolve.core.model import LanguageModel
from evolve.core.protocols import Progress
from evolve.core.run_store import RunStore
from evolve.report.text import count_text
from evolve.search.engine import Search
from evolve.store import RunRow


@contextmanager
def attach(store: RunStore, run: RunRow, *, model: LanguageModel | None = None) -> Iterator[Search]:
    """The search of a stored run, which this process alone continues while the block lasts.

    `model` answers operators instead of the configured one.

    Raises:
        UsageError: another process is continuing the run.
    """
    run = completed(run)
    before = _traces(store, run)
    device_class = expected_device(store, run) if model else ""
    store.claim(run.id)
    try:
        yield components.build_search(
            store, run, run.config, model=model, device_class=device_class
        )
    finally:
        if _traces(store, run) != before:
            store.log("changed by hand", run.name)
        store.release(run.id, *_standing(store, run, before))


def expected_device(store: RunStore, run: RunRow) -> str:
    """Where the run is to be judged, as its configuration says; empty if verdicts say more."""
    return "" if store.environment(run.id) else kind_of(run.config)


def _traces(store: RunStore, run: RunRow) -> tuple[int, Progress]:
    return store.next_sequence(run.id), store.progress(run.id)


def _standing(store: RunStore, run: RunRow, before: tuple[int, Progress]) -> tuple[str, str]:
    """State and reason for afterwards: as they were if nothing has come of it."""
    if run.state != "running" and _traces(store, run) == before:
        return run.state, run.reason
    waiting = len(store.open_tickets(run.id))
    if waiting:
        return "interrupted", f"{count_text(waiting, 'step')} still open"
    return "interrupted", "all steps are told"
