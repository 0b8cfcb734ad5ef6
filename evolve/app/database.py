"""The database that a user names: a file, or the URL of a PostgreSQL server."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolve.store import Store

DEFAULT_STORE = "runs/evolve.db"
SERVER_FOLDER = Path("runs")  # where files about runs on a server go


@contextmanager
def open_store(location: str, *, read_only: bool = True) -> Iterator["Store"]:
    """The database at `location`, which must exist."""
    from evolve.store import Store

    store = Store.open(location, read_only=read_only)
    try:
        yield store
    finally:
        store.close()


def is_server(location: str) -> bool:
    """Whether the words name a database on a server."""
    return location.startswith(("postgresql://", "postgres://"))


def location_of(config: Mapping[str, Any]) -> str:
    """The database of a configuration."""
    return str(config["store"].get("url") or config["store"]["path"])


def place(location: str) -> dict[str, str | None]:
    """The settings of `store` that name a location."""
    is_url = is_server(location)
    return {"path": None if is_url else location, "url": location if is_url else None}


def store_word(location: str) -> str:
    """The location as a word of a command, `store.path=...`."""
    name = "url" if is_server(location) else "path"
    return f"store.{name}={location}"


def may_hold_runs(location: str) -> bool:
    """Whether there is a file; a server is asked when it is opened."""
    return is_server(location) or Path(location).is_file()


def folder_of(location: str) -> Path:
    """Where files about the runs are written."""
    return SERVER_FOLDER if is_server(location) else Path(location).parent
