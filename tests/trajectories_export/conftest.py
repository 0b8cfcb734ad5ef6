"""A database with a search that is told by hand."""

from tests.trajectories.conftest import search, store

__all__ = ["search", "store"]
