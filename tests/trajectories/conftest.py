from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.store import Store
from tests.trajectories.searched import Searched, story


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "searches.db", create=True) as opened:
        yield opened


@pytest.fixture
def search(store: Store) -> Searched:
    return Searched(store)


@pytest.fixture
def told(search: Searched) -> Searched:
    story(search)
    return search
