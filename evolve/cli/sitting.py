"""A run taken up for a moment: for verbs that ask or tell, and judge nothing themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

from evolve.cli import parts
from evolve.core.model import LanguageModel
from evolve.report.text import count_text
from evolve.search.engine import Search
from evolve.store import RunRow, Store


@contextmanager
def sitting(store: Store, run: RunRow, *, model: LanguageModel | None = None) -> Iterator[Search]:
    """The search of a stored run, which this process alone continues while the block lasts.

    `model` answers operators instead of the configured one.

    Raises:
        UsageError: another process is continuing the run.
    """
    store.claim(run.id)
    try:
        yield parts.build_search(store, run, run.config, model=model)
    finally:
        waiting = len(store.open_tickets(run.id))
        reason = f"{count_text(waiting, 'step')} to be told of" if waiting else "all steps are told"
        store.release(run.id, "interrupted", reason)
