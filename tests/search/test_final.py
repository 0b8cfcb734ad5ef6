"""Programs that are measured again after a search has ended, and programs tried on the way.

Invariants:
1. The best custom program is measured, and a mixed one only if it is faster.
2. A program is measured until each baseline was timed beside it or has failed itself.
3. Failures of the judge are judged once more, and nothing else is.
4. What a model tries while it answers is a step of the run.
"""

import asyncio
from dataclasses import replace

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import OPPONENT_FAILED, Fidelity, Label, Status
from evolve.core.lineage import VERIFY
from evolve.core.measurement import Ratio
from evolve.core.protocols import Progress
from evolve.core.records import Account, Allowance, Quota, Spending
from evolve.search.execution.final_evaluation import (
    AGAIN,
    evaluations_left,
    finalists,
    judge_again,
    lacking,
    play_finals,
    unjudged,
)
from evolve.search.execution.judging import Told
from evolve.search.execution.live_judge import SearchJudge
from evolve.search.quotas import Quotas, device_time_over
from evolve.search.selection.part import Part
from evolve.search.termination import Raisable, from_config
from evolve.testing.parts import make_elite
from evolve.testing.population import MemoryPopulation
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from tests.search.conftest import make_search

JUDGE = SyntheticEvaluator(noise=0.0)


def ratio(value: float) -> Ratio:
    return Ratio(value, value * 0.99, value * 1.01)


@pytest.fixture
def search(store, run):
    return make_search(store, run)


def tell(search, number: int, speedup: float | None = None, **about) -> str:
    """A judged program; its digest."""
    ticket = search.offer(f"{SEED_SOURCE}\nNUMBER = {number}\n")
    verdict = JUDGE.judge(search.request(ticket))
    if speedup is not None:
        verdict = replace(verdict, ratios={"eager": ratio(speedup)})
    if about.get("status", Status.CORRECT) is not Status.CORRECT:
        verdict = replace(verdict, ratios={}, custom=None)
    search.tell(ticket, replace(verdict, **about))
    return ticket.proposal.program.digest


def remeasure(search, elite, **about) -> None:
    ticket = search.reevaluate(elite, operator=VERIFY, fidelity=Fidelity.VERIFY)
    verdict = JUDGE.judge(search.request(ticket))
    if "status" in about:
        verdict = replace(verdict, ratios={}, custom=None)
    search.tell(ticket, replace(verdict, **about))


def end(store, run) -> None:
    store.claim(run.id)
    store.release(run.id, "finished", "enough")


def programs(found) -> list[str]:
    return [each.program for each in found]


def test_a_mixed_program_is_measured_only_if_it_is_faster(search):
    custom = tell(search, 1, 2.0)
    assert programs(finalists(search)) == [custom]
    tell(search, 2, 1.9, custom=False)
    assert programs(finalists(search)) == [custom]
    mixed = tell(search, 3, 2.1, custom=False)
    tell(search, 4, 2.05, custom=False)
    assert programs(finalists(search)) == [custom, mixed]


def test_of_mixed_programs_those_count_that_have_kernels_of_their_own_and_did_not_fall(search):
    first, second = tell(search, 1, 2.0, custom=False), tell(search, 2, 3.0, custom=False)
    tell(search, 3, 9.0, custom=False, labels=(Label("decoy_kernel", "line 3"),))
    (found,) = finalists(search)
    assert (found.program, found.fitness.value) == (second, pytest.approx(1.0986, abs=1e-4))
    remeasure(search, found, status=Status.WRONG_VALUE)
    assert programs(finalists(search)) == [first]


def test_a_program_is_measured_until_every_baseline_is_timed_or_has_failed(search, store, run):
    tell(search, 1, 2.0)
    (elite,) = finalists(search)
    baselines = ("compile", "eager_tf32")
    assert lacking(store, run.id, elite, baselines) == ["eager", *baselines]
    assert evaluations_left(search, baselines) == 1
    remeasure(search, elite, status=Status.INFRA)
    assert lacking(store, run.id, elite, baselines) == ["eager", *baselines]
    assert evaluations_left(search, baselines) == 1
    remeasure(search, elite, ratios={"eager": ratio(2.0), "compile": ratio(1.5)})
    assert lacking(store, run.id, elite, baselines) == ["eager_tf32"]
    failed = (Label(OPPONENT_FAILED, "eager_tf32: out of memory"), Label("other", "compile: x"))
    remeasure(search, elite, ratios={"eager": ratio(2.0)}, labels=failed)
    assert lacking(store, run.id, elite, baselines) == []
    assert evaluations_left(search, baselines) == 0
    tell(search, 2, 0.5)
    assert evaluations_left(search, baselines) == 0
    tell(search, 3, 3.0, custom=False)
    assert evaluations_left(search, baselines) == 1


def test_a_final_without_a_time_says_enough_of_all_baselines(search, store, run):
    tell(search, 1, 2.0)
    (elite,) = finalists(search)
    remeasure(search, elite, status=Status.TIMEOUT)
    assert lacking(store, run.id, elite, ("compile",)) == []


def test_an_open_ticket_is_an_evaluation_that_is_left(search):
    search.offer(f"{SEED_SOURCE}\nNUMBER = 1\n")
    assert evaluations_left(search, ()) == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_failures_of_the_judge_are_judged_once_more(search, store, run, stopped):
    tell(search, 1, 2.0)
    failed = tell(search, 2, status=Status.INFRA)
    tell(search, 3, status=Status.TIMEOUT)
    assert programs(unjudged(store, run.id)) == [failed]
    end(store, run)
    stop = asyncio.Event()
    if stopped:
        stop.set()
    asyncio.run(judge_again(search, JUDGE, stop))
    again = store.made_by(run.id, AGAIN)
    assert again == ([] if stopped else [3])
    assert programs(unjudged(store, run.id)) == ([failed] if stopped else [])
    assert (store.run(run.name).state, store.run(run.name).reason) == ("finished", "enough")


def test_finals_are_played_until_none_is_left(search, store, run):
    tell(search, 1, 2.0)
    end(store, run)
    play = play_finals(search, JUDGE, ("compile",), Fidelity.VERIFY, asyncio.Event(), at_once=1)
    assert asyncio.run(play) is False
    assert len(store.made_by(run.id, VERIFY)) == 1
    assert evaluations_left(search, ("compile",)) == 0


def test_programs_that_a_model_tries_are_steps_of_the_run(search, run):
    async def body() -> None:
        taken, spent = [], []
        judge = SearchJudge(search, taken.append, lambda: "".join(spent))
        assert (judge.run, judge.location) == (run.name, search.store.location)
        assert judge.task == run.task
        source = f"{SEED_SOURCE}\nNUMBER = 1\n"
        number = judge.offer(source, operator="agent", parents=(), note="a try")
        (ticket,) = taken
        assert (ticket.sequence, ticket.operator) == (number, "agent")
        assert judge.source(ticket.proposal.program.digest) == source
        assert judge.awaits(ticket)
        assert not await judge.judged(number, 0.01)
        verdict = JUDGE.judge(search.request(ticket))
        search.tell(ticket, verdict)
        judge.told(Told(ticket=ticket, evaluation=verdict, offer=None, progress=Progress()))
        assert await judge.judged(number, 0.01)
        assert not judge.awaits(ticket)
        with pytest.raises(UsageError, match="duplicate: program"):
            judge.offer(source, operator="agent", parents=(), note="the same")
        spent.append("9 of 9 evaluations used")
        with pytest.raises(UsageError, match="more is judged: 9 of 9 evaluations used; end here"):
            judge.offer(source + "X = 1\n", operator="agent", parents=(), note="")
        assert len(taken) == 1

    asyncio.run(body())


ME = Account("user", "me")


def allowance(limit: float | None, spent: float, **usd) -> Allowance:
    quota = Quota(account=ME, device_time_s=limit, usd=usd.get("usd"))
    return Allowance(quota, Spending(device_time_s=spent, usd=usd.get("spent_usd", 0.0)))


@pytest.mark.parametrize(
    ("limit", "spent", "over"), [(None, 9e9, False), (60, 59.9, False), (60, 60, True)]
)
def test_nothing_starts_under_a_quota_of_device_time_that_is_used_up(limit, spent, over):
    message = device_time_over(allowance(limit, spent))
    remedy = "change it by `evolve team quota user me --device-time ...`"
    said = f"user me has used 1m of 1m device time; {remedy}"
    assert message == (said if over else "")


@pytest.mark.parametrize(
    ("known", "progress", "used"),
    [
        (allowance(100, 40), Progress(device_time_s=10), 0.5),
        (allowance(100, 40), Progress(device_time_s=10, device_time_reserved_s=20), 0.7),
        (allowance(100, 90), Progress(device_time_s=90), 1.0),
        (allowance(None, 0, usd=8.0, spent_usd=1.0), Progress(usd=1.0), 0.25),
        (allowance(None, 0, usd=8.0, spent_usd=9.0), Progress(usd=0.0), 0),
        (allowance(None, 0, usd=8.0, spent_usd=None), Progress(usd=1.0), 1.0),
        (allowance(100, 20, usd=8.0, spent_usd=3.0), Progress(usd=1.0), 0.5),
    ],
)
def test_the_used_part_of_quotas_is_that_of_the_tightest(known, progress, used):
    rule = Quotas(lambda: [known])
    assert rule.used(progress) == used
    assert (rule.check(progress) is not None) == (used == 1)
    assert rule.usage(progress) == {}
    assert Quotas(lambda: [known], usd=False, device_time=False).used(progress) == 0


def test_a_rule_with_limits_that_may_be_raised_is_used_as_its_rule_is():
    rule = Raisable({"evaluations": 10}, from_config)
    progress = Progress(evaluations=5)
    assert (rule.used(progress), rule.check(progress)) == (0.5, None)
    assert rule.usage(progress) == from_config({"evaluations": 10}).usage(progress)
    rule.raise_limit("evaluations=10")
    assert (rule.used(progress), rule.limits) == (0.25, {"evaluations": 20})


def test_a_part_of_a_population_is_one_island():
    elites = [make_elite(name, speedup=speed) for name, speed in (("a", 3), ("b", 2), ("c", 1))]
    whole = MemoryPopulation(elites)
    part = Part(whole, elites[:2], turn=4)
    assert (part.islands, part.turn, len(part)) == ({"": elites[:2]}, 4, 2)
    assert Part(whole, [], turn=0).islands == {}
    assert (part.elite("a"), part.elite("c")) == (elites[0], None)
    assert part.slot("b") == whole.slot("b")
