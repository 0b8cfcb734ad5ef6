"""Each back end holds to `StoreConformance`, and the suite notices stores that do not."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.evaluation import Evaluation
from evolve.core.model import Reservation
from evolve.core.protocols import Elite, Offer
from evolve.core.records import Ticket
from evolve.store import Store
from evolve.testing.stores import StoreConformance
from tests.store.servers import Server


class TestSqlite(StoreConformance):
    def open(self, folder: Path) -> Store:
        return Store.open(folder / "searches.db", create=True)


class TestPostgresql(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, server: Server) -> None:
        self.url = server.new_database()

    def open(self, folder: Path) -> Store:
        return Store.open(self.url, create=True)


class Forgetful(Store):
    """Keeps no slots."""

    def slots(self, run: int) -> dict[str, Elite]:
        return {}


class Generous(Store):
    """Lets two processes continue one run."""

    def claim(self, run: int) -> None:
        with suppress(Exception):
            super().claim(run)


class Fickle(Store):
    """Gives back a second verdict as if it held."""

    def evaluated(self, ticket: Ticket, evaluation: Evaluation) -> Ticket:
        return replace(super().evaluated(ticket, evaluation), evaluation=evaluation)


class Mute(Store):
    """Tells nothing to the archive."""

    def tell(
        self, ticket: Ticket, elite: Elite | None, offer: Offer | None, credit: object = None
    ) -> None:
        super().tell(ticket, None, None)


class Cheap(Store):
    """Reserves nothing for a call."""

    def begin_call(self, ticket: Ticket, worst: object) -> int:
        return super().begin_call(ticket, Reservation(tokens=0, usd=0.0))


class Narrow(Store):
    """Knows verdicts of no other run."""

    def cached(self, *key: object) -> Evaluation | None:
        return None


BROKEN: dict[type[Store], str] = {
    Forgetful: "test_slots_follow_from_the_offers",
    Generous: "test_one_process_continues_a_run",
    Fickle: "test_the_first_verdict_stays_and_telling_again_changes_nothing",
    Mute: "test_slots_follow_from_the_offers",
    Cheap: "test_a_call_is_charged_from_before_it_is_sent",
    Narrow: "test_programs_and_verdicts_are_shared_between_runs",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_the_suite_notices_a_store_that_breaks_a_promise(kind: type[Store], tmp_path: Path) -> None:
    suite = StoreConformance()
    suite.open = lambda folder: kind.open(folder / "searches.db", create=True)
    with pytest.raises(AssertionError):
        getattr(suite, BROKEN[kind])(tmp_path)
