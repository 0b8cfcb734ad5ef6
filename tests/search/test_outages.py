"""An endpoint that is down, or refuses, burns no proposals; nobody who can do without it stops."""

import asyncio
import time
from collections import Counter

import pytest

from evolve.core.errors import UsageError
from evolve.store import Store, TicketState
from tests.search.calling import readings, run_with, tickets, writing
from tests.search.conftest import variants
from tests.search.models import (
    COST,
    DOWN,
    PAID,
    ScriptedModel,
    echo,
    writer,
)


def test_an_endpoint_that_is_down_pauses_the_search_says_so_and_burns_nothing(store, run):
    def script(request, number):
        return DOWN if number < 3 else echo(request, number)

    model, said = ScriptedModel(script, slots=1), []
    outcome = run_with(writing(store, run, model), said=said, evaluations=2)
    assert outcome.finished
    assert "connection refused; paused" in said[0]
    assert said[-1] == "model scripted answers again"
    progress = store.progress(run.id)
    assert (progress.proposals, progress.calls) == (2, 2)
    assert progress.tokens == 2 * PAID.total
    assert progress.usd == pytest.approx(2 * COST)


def test_a_pause_is_tried_by_one_call_at_a_time(store, run):
    began = time.monotonic()
    at = []

    def script(request, number):
        at.append(time.monotonic() - began)
        return DOWN if number < 8 else echo(request, number)

    model = ScriptedModel(script, slots=4)
    run_with(writing(store, run, model), said=[], evaluations=1)
    assert model.asked.count(model.asked[0]) >= 2  # the same request, sent again
    assert len(at) == 9


def test_operators_that_need_no_model_go_on_when_it_is_down(store, run):
    model = ScriptedModel(lambda *_: DOWN)
    search = writing(store, run, model, operators=variants() | writer())
    outcome = run_with(search, evaluations=10, wall_time=20)
    assert outcome.finished
    assert store.progress(run.id).evaluations == 10
    assert store.progress(run.id).tokens == 0


def test_the_other_model_of_an_ensemble_goes_on_when_one_is_down(store, run):
    def script(request, number):
        return DOWN if request.model == "broken" else echo(request, number)

    model = ScriptedModel(script, names=("broken", "sound"), slots=2)
    run_with(writing(store, run, model), evaluations=8, wall_time=20)
    judged = [t for t in tickets(store, run) if "evaluation" in t and "model" in t]
    assert {ticket["model"] for ticket in judged} == {"sound"}
    assert len(judged) >= 6


@pytest.mark.slow  # waits for the end of the time; a pause is in the tests above
def test_a_down_endpoint_does_not_keep_a_run_beyond_its_time(store, run):
    outcome = run_with(writing(store, run, ScriptedModel(lambda *_: DOWN)), wall_time=1.5)
    assert "wall time used" in outcome.reason
    assert {ticket.state for ticket in store.open_tickets(run.id)} == {TicketState.ASKED}


def test_what_a_person_has_to_mend_ends_the_sitting_and_the_request_stays(store, run):
    def script(request, number):
        return UsageError("the key is refused; export another")

    with pytest.raises(UsageError, match="key is refused"):
        run_with(writing(store, run, ScriptedModel(script, slots=1)), evaluations=2)
    assert store.run(run.name).state == "interrupted"
    assert store.progress(run.id).usd == 0.0
    model = ScriptedModel()
    run_with(writing(store, run, model), evaluations=2)
    assert len(model.asked) == 2


class Staggered(ScriptedModel):
    """Its calls end one after the other."""

    async def complete(self, request, sample, commit):
        await asyncio.sleep(0.05 * len(self.asked))
        return await super().complete(request, sample, commit)


def test_a_refused_key_costs_nothing_for_what_was_under_way_with_it(store, run):
    model = Staggered(lambda request, number: UsageError("the key is refused"))
    with pytest.raises(UsageError, match="key is refused"):
        run_with(writing(store, run, model), evaluations=9)
    assert len(model.asked) == 4
    progress = store.progress(run.id)
    assert (progress.calls, progress.tokens, progress.usd) == (0, 0, 0.0)


def test_what_other_models_answer_meanwhile_is_kept_and_read(store, run):
    def script(request, number):
        return echo(request, number) if number else UsageError("the key is refused")

    with pytest.raises(UsageError, match="key is refused"):
        run_with(writing(store, run, Staggered(script)), evaluations=9)
    assert store.progress(run.id).usd == pytest.approx(3 * COST)
    assert Counter(readings(store, run)) == {"program": 3, None: 1}


def test_a_serial_search_asks_in_the_same_order_whether_or_not_the_endpoint_was_down(
    store, run, tmp_path
):
    def by_request(request, number):
        return echo(request, 0)

    def down_at_first(request, number):
        return DOWN if number < 3 else by_request(request, number)

    both = writer() | variants()
    with Store.open(tmp_path / "other.db", create=True) as other:
        second = other.create_run(
            name="demo", task=run.task, config=dict(run.config), seed=run.seed
        )
        for place, whose, script in ((store, run, by_request), (other, second, down_at_first)):
            search = writing(place, whose, ScriptedModel(script), operators=both)
            run_with(search, simulated=True, serial=True, evaluations=8)
        asked = Counter(ticket["operator"] for ticket in tickets(store, run))
        assert {*asked} == {"writer", "variants"}
        dump = [*store.dump(run.id, canonical=True)]
        assert [*other.dump(second.id, canonical=True)] == dump
