"""A page over a database with a finished run and one under way."""

from collections.abc import Iterator

import httpx
import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.store import Store
from tests.report.filling import TASK, Filling, evaluation, source
from tests.serve.ui.episodes import add_episodes
from tests.serve.ui.serving import HOSTILE, TOKEN, serving


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    path = tmp_path_factory.mktemp("ui") / "evolve.db"
    with Store.open(path, create=True) as store:
        done = Filling(store=store, name="done").search(40)
        done.verify()
        done.finish()
        under_way = Filling(store=store, name="under way").search(5)
        root = next(iter(under_way.slots.values())).program
        hostile = Program(f"# {HOSTILE}\n{source(999, 2)}")
        proposal = Proposal(program=hostile, parents=(root,), note=HOSTILE)
        add_episodes(store)
        under_way.step("improve", proposal, evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, 0.1))
        yield under_way


@pytest.fixture(scope="module")
def url(filled: Filling) -> Iterator[str]:
    with serving(filled.store.location, "--steer") as address:
        yield address


@pytest.fixture(scope="module")
def read_only_url(filled: Filling) -> Iterator[str]:
    with serving(filled.store.location) as address:
        yield address


@pytest.fixture
def ask(url: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
        yield client
