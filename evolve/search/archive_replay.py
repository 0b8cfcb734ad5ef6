"""A run's offers, replayed into an archive: any archive can be put on any run."""

from functools import partial

from evolve.core.protocols import AddStatus, Archive, Elite, Offer, described
from evolve.core.run_store import RunStore
from evolve.store import RunRow


def project(store: RunStore, run: RunRow, archive: Archive) -> Archive:
    """Replay a run's offers to an archive, in order.

    Args:
        store: where the run is.
        run: the run; its archive and slots are not looked at.
        archive: empty; it is filled, and returned.

    Example:
        >>> project(store, run, TopK(capacity=8)).slots()  # doctest: +SKIP
    """
    known: dict[str, Elite] = {}
    for elite, _ in store.offers(run.id):
        source = partial(store.source, elite.program)
        known[elite.program] = described(elite, archive, source, known.get(elite.program))
        submit(archive, known[elite.program])
    return archive


def submit(archive: Archive, elite: Elite) -> Offer:
    """Offer an elite; a refuted one (of 0 evaluations) leaves the archive instead."""
    if elite.evaluations:
        return archive.offer(elite)
    left = archive.remove(elite.program)
    return Offer(AddStatus.NOT_ADDED, evicted=elite.program if left else None)
