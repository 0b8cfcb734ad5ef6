"""The words that name a database: a file, or the URL of a PostgreSQL server."""

import re
from pathlib import Path

SCHEME = re.compile(r"postgres(ql)?(\+psycopg)?://", re.IGNORECASE)
DEFAULT_STORE = "runs/evolve.db"
SERVER_FOLDER = Path("runs")
"""Folder for reports and other files of runs on a server."""


def is_server(location: str) -> bool:
    """Whether the words name a database on a server, not a file."""
    return SCHEME.match(location) is not None


def folder_of(location: str) -> Path:
    """Folder for files about the runs; that of a server is made if it is missing."""
    if not is_server(location):
        return Path(location).parent
    SERVER_FOLDER.mkdir(exist_ok=True)
    return SERVER_FOLDER
