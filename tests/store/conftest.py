from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "searches.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, create=True) as opened:
        yield opened
