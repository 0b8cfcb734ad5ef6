from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.store import Store
from tests.store.servers import Server, running_server

BOTH = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server() as started:
        yield started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "searches.db"


@pytest.fixture
def url(server: Server) -> str:
    return server.new_database()


@pytest.fixture
def location(request: pytest.FixtureRequest) -> str:
    """Of a database that is not made yet: a file, or on a server in modules that have both."""
    kind = getattr(request, "param", "sqlite")
    return str(request.getfixturevalue("path" if kind == "sqlite" else "url"))


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    with Store.open(location, create=True) as opened:
        yield opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Modules with `BACK_ENDS` run on each of them."""
    kinds = getattr(metafunc.module, "BACK_ENDS", ())
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if kinds and "location" in metafunc.fixturenames and "location" not in chosen:
        metafunc.parametrize("location", kinds, indirect=True)
