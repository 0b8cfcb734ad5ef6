"""A database with a search that is told by hand."""

import pytest

from tests.trajectories.conftest import search, store
from tests.trajectories.searched import Searched, story

__all__ = ["search", "store"]


@pytest.fixture
def told(search: Searched) -> Searched:
    story(search)
    return search
