"""Invariants of model calls:

1. A call is committed with its reservation before it is sent, its reply before it is read.
2. No outcome is lost or asked for twice; one that never arrived stays charged, and is not repeated.
3. Budgets in USD and tokens hold, whatever is under way.
4. An endpoint that is down burns no proposals, and stops nobody who does not need it.
5. Judge and models do not wait for each other.
"""

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace

import pytest

from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import CallStatus, ModelReply, ReplyStatus, Reservation
from evolve.core.protocols import MAX_ROUNDS
from evolve.search.pipeline import Outcome, Pipeline
from evolve.search.termination import from_config
from evolve.store import Store, TicketState
from evolve.testing.synthetic import PEAK_SPEEDUP, SEED_SOURCE, SyntheticEvaluator
from tests.search.conftest import make_search, operators, variants
from tests.search.models import (
    COST,
    DOWN,
    PAID,
    WORST,
    ScriptedModel,
    answer,
    echo,
    run_simulated,
    towards_the_optimum,
    writer,
)


def run_with(search, evaluator=None, *, said=None, simulated=False, serial=False, **limits):
    async def body() -> Outcome:
        return await Pipeline(
            search,
            evaluator or SyntheticEvaluator(),
            from_config(limits),
            say=(said if said is not None else []).append,
            serial=serial,
            verify=False,
        ).run()

    return run_simulated(body) if simulated else asyncio.run(body())


def writing(store, run, model, **changes):
    return make_search(store, run, **{"operators": writer(), "model": model} | changes)


def tickets(store, run):
    return [line for line in map(json.loads, store.dump(run.id)) if line["kind"] == "ticket"]


def readings(store, run):
    return [r["reading"] for t in tickets(store, run) for r in t.get("rounds", ())]


def test_a_reply_becomes_a_program_that_is_judged(store, run):
    model = ScriptedModel()
    assert run_with(writing(store, run, model), evaluations=3).finished
    assert len(model.asked) == 3
    assert readings(store, run) == ["program"] * 3
    progress = store.progress(run.id)
    assert (progress.calls, progress.tokens) == (3, 3 * PAID.total)
    assert progress.usd == pytest.approx(3 * COST)
    assert (progress.tokens_reserved, progress.usd_reserved) == (0, 0.0)


def test_a_call_is_committed_with_its_reservation_before_it_is_sent(store, run):
    seen = []

    def script(request, number):
        with Store.open(store.path, read_only=True) as other:
            [ticket] = other.open_tickets(run.id)
            progress = other.progress(run.id)
            seen.append((ticket.request, progress.tokens_reserved, progress.usd_reserved))
        return echo(request, number)

    model = ScriptedModel(script, slots=1)
    run_with(writing(store, run, model), evaluations=1)
    assert seen == [(model.asked[0], WORST.tokens, WORST.usd)]


def test_a_reply_is_stored_before_it_is_read_and_read_again_after_a_crash(store, run):
    class Crashing(type(writer()["writer"].operator)):
        def interpret(self, context, exchanges):
            raise RuntimeError("a bug in a parser")

    model = ScriptedModel(slots=1)
    broken = {"writer": replace(writer()["writer"], operator=Crashing())}
    with pytest.raises(RuntimeError, match="parser"):
        run_with(writing(store, run, model, operators=broken), evaluations=1)
    [ticket] = store.open_tickets(run.id)
    assert ticket.state is TicketState.REPLIED
    assert SEED_SOURCE in ticket.exchanges[0].reply.text

    assert run_with(writing(store, run, model), evaluations=1).finished
    assert len(model.asked) == 1


def test_a_call_without_an_outcome_is_unknown_stays_charged_and_is_not_sent_again(store, run):
    search = writing(store, run, ScriptedModel())
    ticket = search.ask()
    store.begin_call(ticket, WORST)  # and here the process is killed

    model = ScriptedModel()
    assert run_with(writing(store, run, model), evaluations=1).finished
    [first, second] = tickets(store, run)
    assert first["rounds"][0]["reply"]["status"] == "unknown"
    assert "no outcome" in first["failure"]
    assert second["rounds"][0]["reply"]["status"] == "completed"
    assert len(model.asked) == 1
    progress = store.progress(run.id)
    assert progress.tokens == WORST.tokens + PAID.total
    assert progress.usd == pytest.approx(WORST.usd + COST)
    assert progress.tokens_reserved == 0


def test_a_request_that_was_stored_and_not_sent_is_sent_by_the_resume(store, run):
    asked = writing(store, run, ScriptedModel()).ask()
    model = ScriptedModel()
    run_with(writing(store, run, model), evaluations=1)
    assert model.asked == [asked.request]
    assert store.next_sequence(run.id) == 1


@pytest.mark.parametrize(
    ("reply", "reading", "words"),
    [
        (answer("I would rather not."), "no_code", "no code"),
        (answer("", status=CallStatus.EMPTY), "empty", "empty"),
        (answer("No.", status=CallStatus.REFUSED), "refused", "refused"),
        (ModelReply(status=CallStatus.FAILED, error="too long"), None, "too long"),
        (ModelReply(status=CallStatus.UNKNOWN, error="connection lost"), None, "connection lost"),
        (answer("class Mod", status=CallStatus.TRUNCATED), "no_code", "no code"),
    ],
)
def test_a_reply_without_a_program_is_a_recorded_failure(store, run, reply, reading, words):
    outcome = run_with(writing(store, run, ScriptedModel(lambda *_: reply, slots=1)), proposals=1)
    assert outcome.finished
    [ticket] = tickets(store, run)
    assert ticket["rounds"][0]["reading"] == reading
    assert words in ticket["failure"]


def test_failures_in_a_row_end_the_run_and_name_the_last(store, run):
    model = ScriptedModel(lambda *_: answer("no"), slots=4)
    said = []
    outcome = run_with(writing(store, run, model), said=said, evaluations=100)
    assert any(line.startswith("10 replies in a row gave no program") for line in said)
    assert "replies in a row gave no program, the last: no code" in outcome.reason
    assert 50 <= len(model.asked) <= 50 + 2 * 4


def test_a_model_that_only_fails_is_not_paid_on_because_others_succeed(store, run):
    model = ScriptedModel(lambda *_: answer("no"), slots=1)
    search = writing(store, run, model, operators=variants() | writer())
    outcome = run_with(search, SyntheticEvaluator(), evaluations=400)
    assert "50 replies in a row gave no program" in outcome.reason
    assert store.progress(run.id).evaluations > 5


def test_a_repair_is_one_more_round_of_the_same_ticket(store, run):
    def script(request, number):
        return answer("FIX me") if request.purpose == "propose" else echo(request, number)

    model = ScriptedModel(script, slots=1)
    run_with(writing(store, run, model), evaluations=1)
    assert [request.purpose for request in model.asked] == ["propose", "repair"]
    assert model.asked[1].messages[-1].content == "FIX me"
    assert readings(store, run) == ["no_code", "program"]
    assert store.progress(run.id).proposals == 1


def test_rounds_are_bounded(store, run):
    model = ScriptedModel(lambda *_: answer("FIX"), slots=1)
    run_with(writing(store, run, model), proposals=1)
    assert len(model.asked) == MAX_ROUNDS
    assert f"no program after {MAX_ROUNDS} rounds" in store.step(run.id, 0).failure


def test_samples_of_one_request_are_tickets_and_calls_of_their_own(store, run):
    model = ScriptedModel()
    run_with(writing(store, run, model, operators=writer(samples=3)), evaluations=3)
    assert len({request.key for request in model.asked}) == 1
    rounds = [ticket["rounds"][0] for ticket in tickets(store, run) if "rounds" in ticket]
    assert [each["sample"] for each in rounds] == [0, 1, 2]


def test_a_program_that_is_no_python_is_a_failure_and_does_not_end_the_search(store, run):
    model = ScriptedModel(lambda *_: answer("class ModelNew:\n    SIZE = 007\n"), slots=1)
    assert run_with(writing(store, run, model), proposals=1).finished
    assert "cannot be rendered: line 2: not valid Python" in store.step(run.id, 0).failure


def test_a_duplicate_reply_is_a_failure_and_not_judged(store, run):
    model = ScriptedModel(lambda *_: answer(SEED_SOURCE), slots=1)
    run_with(writing(store, run, model), proposals=2)
    assert "duplicate" in store.step(run.id, 1).failure


def test_a_reply_that_cannot_be_written_as_utf8_is_stored(store, run):
    model = ScriptedModel(lambda *_: answer("ModelNew = '\ud800'", error="\udfff"), slots=1)
    run_with(writing(store, run, model), proposals=1)
    assert readings(store, run) == ["program"]


def test_a_usd_budget_is_never_exceeded_whatever_is_under_way(store, run):
    paid = []

    def script(request, number):
        paid.append(store.progress(run.id))
        return echo(request, number)

    model = ScriptedModel(script, slots=8, latency_s=0.01)
    outcome = run_with(writing(store, run, model), SyntheticEvaluator(slots=4), usd=0.5)
    assert outcome.finished
    assert "of 0.50 USD used, counting the next call with up to 1,000 tokens" in outcome.reason
    assert all(now.usd + now.usd_reserved <= 0.5 + 1e-9 for now in paid)
    spent = store.progress(run.id).usd
    assert 0.5 - WORST.usd < spent <= 0.5


def test_a_budget_may_be_met_exactly(store, run):
    model = ScriptedModel(slots=1, worst=Reservation(tokens=PAID.total, usd=COST))
    run_with(writing(store, run, model), usd=3 * COST)
    assert store.progress(run.id).calls == 3


def test_a_token_budget_holds(store, run):
    model = ScriptedModel(slots=3)
    outcome = run_with(writing(store, run, model), tokens=5000)
    assert "tokens" in outcome.reason
    assert 4000 < store.progress(run.id).tokens <= 5000


def test_an_unpriced_call_makes_the_cost_unknown_and_not_zero(store, run):
    model = ScriptedModel(
        lambda request, number: replace(echo(request, number), cost_usd=None),
        worst=Reservation(tokens=1000, usd=None),
    )
    run_with(writing(store, run, model), evaluations=3)
    assert store.progress(run.id).usd is None
    assert store.progress(run.id).tokens == 3 * PAID.total
    [cost] = store.costs(run.id)
    assert (cost.calls, cost.unpriced, cost.unknown) == (3, 3, 0)


def test_a_missing_count_is_charged_as_reserved(store, run):
    model = ScriptedModel(
        lambda request, number: replace(echo(request, number), cost_usd=None, usage=None)
    )
    run_with(writing(store, run, model), evaluations=1)
    assert store.progress(run.id).usd == pytest.approx(WORST.usd)
    assert store.progress(run.id).tokens == WORST.tokens


def test_an_evaluation_budget_is_met_exactly_with_calls_ahead(store, run):
    model = ScriptedModel(slots=16, latency_s=0.01)
    evaluator = SyntheticEvaluator(slots=2, latency_s=0.002)
    run_with(writing(store, run, model), evaluator, evaluations=9)
    assert store.progress(run.id).evaluations == 9
    assert len(model.asked) == 9


def test_a_proposal_budget_is_met_exactly_with_calls_ahead(store, run):
    model = ScriptedModel(slots=8, latency_s=0.01)
    run_with(writing(store, run, model), proposals=11)
    assert store.progress(run.id).proposals == len(model.asked) == 11


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

    async def complete(self, request, sample=0):
        await asyncio.sleep(0.05 * len(self.asked))
        return await super().complete(request, sample)


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


def test_without_a_model_operators_that_ask_one_are_left_out(store, run):
    search = make_search(store, run, operators=operators() | writer())
    assert run_with(search, evaluations=5).finished
    assert "writer" not in {step.operator for step in store.steps(run.id)}


def test_a_request_for_another_model_waits_for_whoever_has_it(store, run):
    writing(store, run, ScriptedModel(names=("elsewhere",))).ask()
    run_with(writing(store, run, ScriptedModel()), evaluations=1)
    [ticket] = store.open_tickets(run.id)
    assert ticket.request.model == "elsewhere"


def test_a_stop_keeps_replies_that_arrived_and_gives_the_rest_up(store, run):
    def script(request, number):
        return echo(request, number)

    model = ScriptedModel(script, slots=4, latency_s=0.2)

    async def body():
        pipeline = Pipeline(
            writing(store, run, model),
            SyntheticEvaluator(latency_s=60),
            from_config({"evaluations": 50}),
            drain_s=0.1,
        )
        asyncio.get_running_loop().call_later(0.5, pipeline.request_stop, "SIGTERM")
        return await pipeline.run()

    outcome = asyncio.run(body())
    assert not outcome.finished
    proposed = [t for t in store.open_tickets(run.id) if t.state is TicketState.PROPOSED]
    assert len(proposed) >= 4
    unknown = [t for t in tickets(store, run) if "no outcome" in t["failure"]]
    assert len(proposed) + len(unknown) == len(model.asked)
    assert store.pending_calls(run.id) == []
    assert store.progress(run.id).tokens_reserved == 0


def test_a_stop_leaves_what_only_waited_to_be_sent_to_a_resume_at_no_cost(store, run):
    class Waiting(ScriptedModel):
        async def complete(self, request, sample=0):
            try:
                return await super().complete(request, sample)
            except asyncio.CancelledError:
                raise ModelUnavailable("given up while it waited") from None

    said = []

    async def body():
        model, judge = Waiting(latency_s=60.0), SyntheticEvaluator()
        pipeline = Pipeline(
            writing(store, run, model),
            judge,
            from_config({"evaluations": 9}),
            say=said.append,
            drain_s=0.1,
        )
        asyncio.get_running_loop().call_later(0.3, pipeline.request_stop, "SIGTERM")
        return await pipeline.run()

    assert not asyncio.run(body()).finished
    assert {ticket.state for ticket in store.open_tickets(run.id)} == {TicketState.ASKED}
    assert (store.progress(run.id).tokens, store.progress(run.id).calls) == (0, 0)
    assert said == []


@pytest.mark.parametrize(("failing", "least"), [(0.0, 0.9), (0.3, 0.6)])
def test_the_slot_is_busy_while_models_think_for_half_a_minute(store, run, failing, least):
    """30 s a call, 2 s an evaluation, one slot, 16 calls under way: real pipeline, simulated time.

    At 30 % failures 16 calls bring 0.37 programs a second at most, for a slot that takes 0.5.
    """
    spans = []

    class Judge(SyntheticEvaluator):
        async def evaluate(self, request):
            start = asyncio.get_running_loop().time()
            verdict = await super().evaluate(request)
            spans.append((start, asyncio.get_running_loop().time()))
            return verdict

    def script(request, number):
        return answer("sorry") if number % 10 < 10 * failing else echo(request, number)

    model = ScriptedModel(script, slots=16, latency_s=30.0)
    search = writing(store, run, model)
    run_with(search, Judge(latency_s=2.0), simulated=True, evaluations=150)
    warm = [span for span in spans if span[0] >= 60.0][:-16]
    busy = sum(end - start for start, end in warm) / (warm[-1][1] - warm[0][0])
    print(f"slot busy {100 * busy:.1f} % at {100 * failing:.0f} % failures")
    assert busy >= least


def test_calls_do_not_wait_for_a_slow_judge(store, run):
    """Up to a backlog, programs are written while the judge is busy."""
    model = ScriptedModel(slots=4, latency_s=1.0)
    evaluator = SyntheticEvaluator(latency_s=100.0)

    async def body():
        loop = asyncio.get_running_loop()
        pipeline = Pipeline(writing(store, run, model), evaluator, from_config({"evaluations": 3}))
        loop.call_later(50.0, pipeline.request_stop, "look")
        return await pipeline.run()

    run_simulated(body)
    assert len(model.asked) == 3
    assert evaluator.calls == 1


def test_calls_run_no_further_ahead_than_a_slow_judge_needs(store, run):
    """A prompt that is written late knows more, and what waits at the end is never judged."""
    model = ScriptedModel(slots=8, latency_s=1.0)

    async def body():
        loop = asyncio.get_running_loop()
        judge = SyntheticEvaluator(latency_s=100.0)
        pipeline = Pipeline(writing(store, run, model), judge, from_config({"evaluations": 99}))
        loop.call_later(3000.0, pipeline.request_stop, "look")
        return await pipeline.run()

    run_simulated(body)
    assert 2 <= len(model.asked) - store.progress(run.id).evaluations <= 4


def test_what_waits_for_the_judge_when_the_time_is_over_waits_for_a_resume(store, run):
    model = ScriptedModel(slots=8)
    judge = SyntheticEvaluator(latency_s=0.3)
    assert run_with(writing(store, run, model), judge, wall_time=0.5).finished
    waiting = len(store.open_tickets(run.id))
    assert waiting >= 4
    assert judge.calls <= 3
    asked = len(model.asked)
    assert run_with(writing(store, run, model), wall_time=0.5).finished
    assert store.open_tickets(run.id) == []
    assert len(model.asked) == asked


def test_operators_without_a_model_fill_in_while_models_think(store, run):
    model = ScriptedModel(slots=1, latency_s=30.0)
    search = writing(store, run, model, operators=variants() | writer())
    run_with(search, SyntheticEvaluator(latency_s=1.0), simulated=True, evaluations=60)
    made = Counter(step.operator for step in store.steps(run.id))
    assert made["variants"] > 40
    assert made["writer"] >= 2


def test_a_search_with_a_model_finds_the_planted_optimum(store, run):
    model = ScriptedModel(towards_the_optimum)
    run_with(writing(store, run, model), evaluations=60)
    assert store.progress(run.id).best.value > 0.9 * PEAK_SPEEDUP


def test_one_thing_at_a_time_where_the_order_has_to_be_repeatable(store, run):
    model, evaluator = ScriptedModel(slots=8, latency_s=1.0), SyntheticEvaluator(latency_s=1.0)
    under_way = []

    class Judge(SyntheticEvaluator):
        async def evaluate(self, request):
            under_way.append(store.progress(run.id).tokens_reserved)
            return await super().evaluate(request)

    evaluator = Judge(slots=4, latency_s=1.0)
    search = writing(store, run, model, operators=operators() | writer())
    run_with(search, evaluator, simulated=True, serial=True, evaluations=12)
    assert evaluator.peak == 1
    assert set(under_way) == {0}


def test_the_reading_of_a_reply_is_part_of_the_closed_list():
    assert all(status.value == status.name.lower() for status in ReplyStatus)


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
