"""Invariants of model calls:

1. A call is committed with its reservation before it is sent, its reply before it is read.
2. No outcome is lost or asked for twice; one that never arrived stays charged, and is not repeated.
3. Judge and models do not wait for each other.

Budgets are in test_call_budgets.py, endpoints that are down in test_outages.py.
"""

import asyncio
import math
from collections import Counter
from dataclasses import replace

import pytest

from evolve.core.errors import ModelUnavailable
from evolve.core.model import CallStatus, ModelReply, ReplyStatus
from evolve.core.program import Program
from evolve.core.protocols import MAX_ROUNDS, Declined, Proposal
from evolve.search.execution.pipeline import Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.termination import from_config
from evolve.store import Store, TicketState
from evolve.store.champion import champion
from evolve.testing.synthetic import PEAK_SPEEDUP, SEED_SOURCE, SyntheticEvaluator
from operators.local.tune import Tune
from tests.search.calling import readings, run_with, tickets, writing
from tests.search.conftest import make_search, operators, variants
from tests.search.models import (
    COST,
    PAID,
    WORST,
    ScriptedModel,
    answer,
    echo,
    run_simulated,
    towards_the_optimum,
    writer,
)


def test_a_reply_becomes_a_program_that_is_judged(store, run):
    model = ScriptedModel()
    assert run_with(writing(store, run, model), evaluations=3).finished
    assert len(model.asked) == 3
    assert readings(store, run) == ["program"] * 3
    progress = store.progress(run.id)
    assert (progress.calls, progress.tokens) == (3, 3 * PAID.total)
    assert progress.usd == pytest.approx(3 * COST)
    assert (progress.tokens_reserved, progress.usd_reserved) == (0, 0.0)


class Starts:
    """A program to start from that is none of the task's seeds, such as a compiler's."""

    parents = 0
    is_seed = True

    def propose(self, context):
        if context.facts.proposals(context.operator):
            return Declined("proposed already")
        return Proposal(program=Program(f"{SEED_SOURCE}\n\nCOMPILED = 1\n"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("tuned", [False, True])
def test_the_first_prompt_waits_for_the_first_verdict(store, run, tuned):
    """And no longer: tuning the program meanwhile holds nothing up."""
    judged_before = []

    def script(request, number):
        judged_before.append(store.progress(run.id).evaluations)
        return echo(request, number)

    parts = {"starts": Scheduled(operator=Starts(), weight=math.inf), **writer()}
    if tuned:
        parts["tune"] = Scheduled(operator=Tune(), weight=100.0)
    model = ScriptedModel(script, latency_s=0.01)
    search = writing(store, run, model, operators=parts)
    assert run_with(search, SyntheticEvaluator(latency_s=0.05), evaluations=6).finished
    assert judged_before
    assert judged_before[0] == 1


def test_a_call_is_committed_with_its_reservation_before_it_is_sent(store, run):
    seen = []

    def script(request, number):
        with Store.open(store.location, read_only=True) as other:
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


@pytest.mark.slow  # failures in a row are above
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
        async def complete(self, request, sample, commit):
            try:
                return await super().complete(request, sample, commit)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_call_that_outlasts_the_wall_time_is_given_up_and_stays_charged(store, run):
    class Slow(ScriptedModel):
        async def complete(self, request, sample, commit):
            self.latency_s = 60.0 * (len(self.asked) > 1)
            return await super().complete(request, sample, commit)

    async def body():
        search = writing(store, run, Slow(slots=1))
        limits = from_config({"wall_time": 2})
        return await Pipeline(search, SyntheticEvaluator(), limits, late_s=0.5).run()

    assert asyncio.run(body()).finished
    assert champion(store, run).verified
    assert store.progress(run.id).wall_time_s < 10
    assert store.progress(run.id).tokens == 2 * 400 + WORST.tokens
    assert store.open_tickets(run.id) == []


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
