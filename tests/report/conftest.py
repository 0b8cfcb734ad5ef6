from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.store import Store
from tests.report.filling import Filling


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evolve.db", create=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    """A finished run of 120 proposals with a verified winner. Read only."""
    path = tmp_path_factory.mktemp("searched") / "evolve.db"
    with Store.open(path, create=True) as opened:
        filled = Filling(store=opened).search(120)
        filled.verify()
        filled.finish()
        yield filled
