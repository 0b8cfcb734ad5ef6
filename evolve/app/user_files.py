"""Files that a user names: the database, and a candidate."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.core.errors import UsageError

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


def read_candidate(path: str, what: str) -> str:
    """The text of a Python file that a user names.

    Raises:
        UsageError: missing, a folder, empty, or not text.
    """
    file = Path(path)
    try:
        source = file.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{what} {path} cannot be read: {reason}") from error
    if not source.strip():
        raise UsageError(f"{what} {path} is empty; it needs a class ModelNew")
    return source
