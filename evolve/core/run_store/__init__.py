"""The store of a search, in which each fact is committed before it is used: a protocol in parts.

`evolve.store` implements it on SQLite and on PostgreSQL; `evolve.testing.stores` tests any
implementation. Digests name programs and instances; `run` is the number of a run, a
ticket's `sequence` its number within the run, from 0.
"""

from typing import Protocol

from evolve.core.run_store.reads import ArchiveReads, LineageReads, Recorded, RunReads, TicketReads
from evolve.core.run_store.writes import RunWrites, TicketWrites, Upkeep

__all__ = [
    "ArchiveReads",
    "LineageReads",
    "Recorded",
    "RunReads",
    "RunStore",
    "RunWrites",
    "TicketReads",
    "TicketWrites",
    "Upkeep",
]


class RunStore(
    RunReads,
    TicketReads,
    Recorded,
    ArchiveReads,
    LineageReads,
    RunWrites,
    TicketWrites,
    Upkeep,
    Protocol,
):
    """A database with any number of runs.

    Every method that changes something has committed when it returns. A run is written to by one
    process at a time: `claim` it first. Programs and evaluations are shared between runs.

    Raises:
        UsageError: a database, run or program that is not there or not for us, with the remedy.
        StoreError: the database cannot be read or written, a ticket is not in the state that the
            call needs, or the run was taken over by another process.
    """
