"""The database that a user names: a file, or the URL of a PostgreSQL server."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve.core.errors import UsageError

if TYPE_CHECKING:
    from evolve.store import Store

DEFAULT_STORE = "runs/evolve.db"
_PLAIN = re.compile(r"[\w:/@.+-]+")  # Hydra reads these without quotes
SERVER_FOLDER = Path("runs")  # for files about runs on a server


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
    """The database of a configuration.

    Raises:
        UsageError: the configuration names none, or a URL that is not of a server.
    """
    url, path = config["store"].get("url"), config["store"]["path"]
    if url is not None and not is_server(url):
        raise UsageError(f"store.url={url}: write postgresql://USER@HOST:PORT/DATABASE")
    if url is None and path is None:
        raise UsageError(
            "store=postgresql needs the server: store.url=postgresql://USER@HOST:PORT/DATABASE"
        )
    return str(url or path)


def place(location: str) -> dict[str, str | None]:
    """The settings of `store` that name a location."""
    is_url = is_server(location)
    return {"path": None if is_url else location, "url": location if is_url else None}


def store_word(location: str) -> str:
    """The location as a word of a command, `store.path=...`."""
    if not is_server(location):
        return f"store.path={location}"
    return f"store.url={location}" if _PLAIN.fullmatch(location) else f'store.url="{location}"'


def may_hold_runs(location: str) -> bool:
    """Whether there is a file; a server is asked when it is opened."""
    return is_server(location) or Path(location).is_file()


def folder_of(location: str) -> Path:
    """Folder for files about the runs; that of a server is made if it is missing."""
    if not is_server(location):
        return Path(location).parent
    SERVER_FOLDER.mkdir(exist_ok=True)
    return SERVER_FOLDER
