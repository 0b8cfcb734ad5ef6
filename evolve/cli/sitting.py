"""A run taken up for a moment: for verbs that ask or tell, and judge nothing themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

from evolve.cli import parts
from evolve.report.text import count_text
from evolve.search.engine import Search
from evolve.store import RunRow, Store


@contextmanager
def sitting(store: Store, run: RunRow) -> Iterator[Search]:
    """The search of a stored run, which this process alone continues while the block lasts.

    Raises:
        UsageError: another process is continuing the run.
    """
    store.claim(run.id)
    try:
        yield _search(store, run)
    finally:
        waiting = count_text(len(store.open_tickets(run.id)), "step")
        store.release(run.id, "interrupted", f"{waiting} without a verdict, which is to be told")


def _search(store: Store, run: RunRow) -> Search:
    config = run.config
    return Search(
        store=store,
        run=run,
        archive=parts.build_archive(config),
        selection=parts.build_selection(config),
        operators=parts.build_operators(config),
        baseline=config["baseline"],
        opponents=config["opponents"],
    )
