"""A run on the synthetic task, as searches are tested with."""

from tests.search.conftest import run, store

__all__ = ["run", "store"]
