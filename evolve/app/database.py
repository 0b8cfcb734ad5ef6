"""The database that a user names: a file, or the URL of a PostgreSQL server."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evolve.core.errors import UsageError
from evolve.store.location import is_server

if TYPE_CHECKING:
    from evolve.store import Store

_PLAIN = re.compile(r"[\w:/@.+-]+")  # Hydra reads these without quotes


@contextmanager
def open_store(location: str, *, read_only: bool = True) -> Iterator["Store"]:
    """The database at `location`, which must exist."""
    from evolve.store import Store

    store = Store.open(location, read_only=read_only)
    try:
        yield store
    finally:
        store.close()


def location_of(config: Mapping[str, Any]) -> str:
    """The database of a configuration.

    Raises:
        UsageError: the configuration names none, or a URL that is not of a server.
    """
    url, path = config["store"]["url"], config["store"]["path"]
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
