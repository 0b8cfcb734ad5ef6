"""The database that a user names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evolve.store import Store

DEFAULT_STORE = "runs/evolve.db"


@contextmanager
def open_store(path: str, *, read_only: bool = True) -> Iterator["Store"]:
    """The database at `path`, which must exist."""
    from evolve.store import Store

    store = Store.open(path, read_only=read_only)
    try:
        yield store
    finally:
        store.close()
