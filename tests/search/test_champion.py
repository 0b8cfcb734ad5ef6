"""Who is crowned (evolve.store.champion):

1. A verification outranks every number of the search; what it refutes is never crowned.
2. A direct duel outranks ratios from separate runs; a challenger has to win by a whole interval.
3. The last word on an instance counts, and it is about the instance, not the program.
4. A champion that its verification found slower than the search had is challenged by whoever is
   faster than that by a whole interval; also where a run is resumed.
5. Where it is asked for, the first program that can be is verified before others are judged, and
   measured in full after that.
"""

import asyncio
from dataclasses import replace

import pytest

from evolve.core.evaluation import EARLY_STOPPED, Fidelity, Label, Status
from evolve.core.lineage import REMEASURE, VERIFY
from evolve.core.measurement import UNREACHABLE_SPEEDUP, Ratio
from evolve.core.records import Judge
from evolve.search.execution.final_evaluation import play_finals
from evolve.search.execution.pipeline import Pipeline
from evolve.search.execution.verification import MAX_CONTENDERS
from evolve.search.termination import from_config
from evolve.store.champion import CHAMPION, RUNNER_UP, best_path, champion
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, constants
from tests.search.conftest import make_search, run_to_end, run_until_stopped, variants
from tests.search.models import ScriptedModel, writer


class Verifier(SyntheticEvaluator):
    """Gives searches the usual verdict, and verifications what a rule says."""

    def __init__(self, rule, **settings):
        super().__init__(**settings)
        self.rule = rule

    def judge(self, request):
        verdict = super().judge(request)
        return self.rule(request, verdict) if request.fidelity is Fidelity.VERIFY else verdict


def refuted(verdict):
    return replace(verdict, status=Status.WRONG_VALUE, ratios={}, cases=(), samples={})


def verified(store, run):
    return [step for step in store.steps(run.id) if step.operator == VERIFY]


def test_a_refuted_leader_is_not_crowned_and_the_next_one_is_verified(store, run):
    leaders = []

    def rule(request, verdict):
        leaders.append(request.instance)
        return refuted(verdict) if len(leaders) == 1 else verdict

    run_to_end(make_search(store, run, operators=variants()), Verifier(rule), evaluations=4)
    winner = champion(store, run)
    assert winner.verified
    assert winner.instance == leaders[1] != leaders[0]


def test_a_run_whose_contenders_are_all_refuted_names_no_winner_that_was_refuted(store, run):
    evaluator = Verifier(lambda request, verdict: refuted(verdict))
    run_to_end(make_search(store, run, operators=variants()), evaluator, evaluations=2)
    assert len(verified(store, run)) == 2
    assert champion(store, run) is None


def test_a_leader_that_loses_its_duel_gives_way_to_the_runner_up(store, run):
    def rule(request, verdict):
        if RUNNER_UP in request.opponents:
            return replace(verdict, ratios=verdict.ratios | {RUNNER_UP: Ratio(0.9, 0.88, 0.92)})
        return replace(verdict, ratios=verdict.ratios | {CHAMPION: Ratio(1.1, 1.08, 1.12)})

    run_to_end(make_search(store, run, operators=variants()), Verifier(rule), evaluations=4)
    first, second = verified(store, run)
    assert champion(store, run).sequence == second.sequence
    assert first.program != second.program
    assert store.step(run.id, best_path(store, run)[-1]).program == second.program


@pytest.mark.sample(1)
@pytest.mark.parametrize(("duel", "crowned"), [((1.0, 0.98, 1.02), 0), ((1.1, 1.05, 1.15), 1)])
def test_a_challenger_needs_a_whole_interval_to_dethrone_the_champion(store, run, duel, crowned):
    def rule(request, verdict):
        if CHAMPION not in request.opponents:
            return verdict
        return replace(verdict, ratios=verdict.ratios | {CHAMPION: Ratio(*duel)})

    run_to_end(make_search(store, run), Verifier(rule), evaluations=1)
    search = make_search(store, run)
    faster = search.offer(SEED_SOURCE.replace("BLOCK = 16", "BLOCK = 128") + "X = 1\n")
    search.tell(faster, SyntheticEvaluator().judge(search.request(faster)))
    run_to_end(make_search(store, run), Verifier(rule), evaluations=2)
    assert len(verified(store, run)) == 2
    assert champion(store, run).sequence == verified(store, run)[crowned].sequence


def test_a_duel_that_a_stop_cut_short_is_fought_when_the_run_is_resumed(store, run):
    def rule(request, verdict):
        drawn = {CHAMPION: Ratio(1.0, 0.98, 1.02)} if CHAMPION in request.opponents else {}
        return replace(verdict, ratios=verdict.ratios | drawn)

    run_to_end(make_search(store, run), Verifier(rule), evaluations=1)
    before = champion(store, run)
    search = make_search(store, run)
    faster = search.offer(SEED_SOURCE.replace("BLOCK = 16", "BLOCK = 128") + "X = 1\n")
    search.tell(faster, SyntheticEvaluator().judge(search.request(faster)))
    run_until_stopped(make_search(store, run), Verifier(rule, latency_s=60.0), evaluations=2)
    [left] = store.open_tickets(run.id)
    assert left.operator == VERIFY
    run_to_end(make_search(store, run), Verifier(rule), evaluations=2)
    assert CHAMPION in store.evaluation(run.id, left.sequence).ratios
    assert champion(store, run).instance == before.instance


def test_a_first_duel_that_a_stop_cut_short_is_fought_and_gives_way_to_the_runner_up(store, run):
    def rule(request, verdict):
        if RUNNER_UP in request.opponents:
            return replace(verdict, ratios=verdict.ratios | {RUNNER_UP: Ratio(0.9, 0.88, 0.92)})
        return replace(verdict, ratios=verdict.ratios | {CHAMPION: Ratio(1.1, 1.08, 1.12)})

    asyncio.run(
        Pipeline(
            make_search(store, run, operators=variants()),
            SyntheticEvaluator(),
            from_config({"evaluations": 4}),
            verify=False,
        ).run()
    )
    stopped = Verifier(rule, latency_s=60.0)
    run_until_stopped(make_search(store, run, operators=variants()), stopped, evaluations=4)
    [left] = store.open_tickets(run.id)
    run_to_end(make_search(store, run, operators=variants()), Verifier(rule), evaluations=4)
    first, second = verified(store, run)
    assert first.sequence == left.sequence
    assert champion(store, run).sequence == second.sequence


def test_a_better_instance_of_a_verified_program_is_verified_too(store, run):
    run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=1)
    before = champion(store, run)
    run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=4)
    after = champion(store, run)
    assert after.verified
    assert after.program == before.program
    assert after.assignment != before.assignment
    assert after.ratio.value > before.ratio.value


@pytest.mark.slow  # a run that has a verified program is resumed below
def test_a_finished_run_that_is_resumed_verifies_nothing_twice(store, run):
    run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=5)
    run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=5)
    assert len(verified(store, run)) == 1


class Sobering(SyntheticEvaluator):
    """Searches and verifies programs at the speedups that are listed by their VARIANT."""

    def __init__(self, searched, verified):
        super().__init__()
        self.searched, self.verified = searched, verified

    def judge(self, request):
        verdict = super().judge(request)
        if request.fidelity is not Fidelity.VERIFY:
            return replace(
                verdict, ratios={"eager": around(self.searched[variant(request.source)])}
            )
        own = self.verified[variant(request.source)]
        duels = {
            name: around(own / self.verified[variant(source)])
            for name, source in request.opponents.items()
        }
        return replace(verdict, ratios={"eager": around(own)} | duels)


def variant(source: str) -> int:
    return int(constants(source)["VARIANT"])


def around(value: float) -> Ratio:
    return Ratio(value, value * 0.975, value * 1.025)


def test_a_champion_that_turned_out_slower_is_challenged_by_those_that_were_not(store, run):
    evaluator = Sobering(searched=(2.0, 1.9, 1.85), verified=(1.5, 1.4, 1.85))
    run_to_end(make_search(store, run, operators=variants()), evaluator, evaluations=3)
    assert champion(store, run).ratio == around(1.85)
    assert [variant(store.source(step.program)) for step in verified(store, run)] == [0, 1, 2]


def test_who_is_not_faster_by_a_whole_interval_challenges_nobody(store, run):
    evaluator = Sobering(searched=(2.0, 1.85), verified=(1.8, 1.85))
    run_to_end(make_search(store, run, operators=variants()), evaluator, evaluations=2)
    assert len(verified(store, run)) == 1
    assert champion(store, run).ratio == around(1.8)


def test_a_sitting_verifies_so_many_contenders_and_a_resumed_one_goes_on_from_there(store, run):
    evaluator = Sobering(searched=[2.0 - n / 100 for n in range(9)], verified=[1.0] * 9)
    for times in (1, 2):
        search = make_search(store, run, operators=variants())
        run_to_end(search, evaluator, evaluations=5)
        assert len(verified(store, run)) == min(times * MAX_CONTENDERS, 5)
    instances = [step.program for step in verified(store, run)]
    assert len(instances) == len(set(instances))


def test_a_resumed_run_challenges_a_champion_also_where_the_leader_is_the_same(store, run):
    evaluator = Sobering(searched={0: 2.0, 2: 1.85}, verified={0: 1.5, 2: 1.85})
    run_to_end(make_search(store, run, operators=variants()), evaluator, evaluations=1)
    assert champion(store, run).ratio == around(1.5)
    search = make_search(store, run, operators=variants())
    run_to_end(search, evaluator, evaluations=2)
    assert variant(store.source(search.leader.program)) == 0
    assert champion(store, run).ratio == around(1.85)


def test_finals_measure_whoever_is_faster_than_what_the_leader_came_to(store, run):
    evaluator = Sobering(searched=(2.0, 1.9, 1.85), verified=(1.5, 1.85, 1.4))

    async def search_and_play() -> None:
        search = make_search(store, run, operators=variants())
        await Pipeline(search, evaluator, from_config({"evaluations": 3}), verify=False).run()
        await play_finals(search, evaluator, (), Fidelity.VERIFY, asyncio.Event(), at_once=1)

    asyncio.run(search_and_play())
    assert [variant(store.source(step.program)) for step in verified(store, run)] == [0, 1]
    assert champion(store, run).ratio == around(1.85)


@pytest.mark.parametrize(
    ("status", "is_left"),
    [(Status.CORRECT, False), (Status.WRONG_VALUE, False), (Status.INFRA, True)],
)
def test_a_final_that_the_judge_could_not_decide_is_left_to_another_call(
    store, run, status, is_left
):
    def rule(request, verdict):
        return verdict if status is Status.CORRECT else replace(verdict, status=status, ratios={})

    async def search_and_play() -> bool:
        search, evaluator = make_search(store, run), Verifier(rule)
        await Pipeline(search, evaluator, from_config({"evaluations": 2}), verify=False).run()
        return await play_finals(search, evaluator, (), Fidelity.VERIFY, asyncio.Event(), at_once=1)

    assert asyncio.run(search_and_play()) is is_left
    assert verified(store, run)[0].status is status


class Recording(SyntheticEvaluator):
    """Keeps how thoroughly it was asked, in order, and how many were under way then."""

    def __init__(self, fails=False, stalls_at=0, judge=None):
        super().__init__(slots=4, latency_s=0.01)
        self.fails, self.stalls_at, self.other = fails, stalls_at, judge
        self.asked, self.under_way = [], 0
        self.target_speedups = []

    async def evaluate(self, request):
        self.under_way += 1
        self.target_speedups.append(request.target_speedups)
        self.asked.append((request.fidelity, self.under_way))
        try:
            await asyncio.sleep(60.0 if len(self.asked) == self.stalls_at else 0.0)
            verdict = await super().evaluate(request)
        finally:
            self.under_way -= 1
        return refuted(verdict) if self.fails else verdict

    def judge(self, request):
        return self.other.judge(request) if self.other else super().judge(request)


LIMITS = {"evaluations": 6}


def opened(search, evaluator, **limits):
    asyncio.run(Pipeline(search, evaluator, from_config(limits), open_verified=True).run())
    return [fidelity for fidelity, _ in evaluator.asked]


def test_a_first_program_is_verified_before_others_are_judged(store, run):
    evaluator = Recording()
    asked = opened(make_search(store, run, operators=variants()), evaluator, evaluations=6)
    assert evaluator.asked[:2] == [(Fidelity.SEARCH, 1), (Fidelity.VERIFY, 1)]
    assert evaluator.target_speedups[:2] == [
        {"eager": UNREACHABLE_SPEEDUP},
        {},
    ]  # a first look will do
    assert UNREACHABLE_SPEEDUP not in evaluator.target_speedups[2].values()
    assert asked.count(Fidelity.SEARCH) == 6
    first, second, *_ = store.steps(run.id)
    assert second.operator == VERIFY
    assert second.program == first.program
    assert max(beside for _, beside in evaluator.asked) == 4


class Glancing(Recording):
    """Ends where a judge does that is content with a first look."""

    def judge(self, request):
        verdict = super().judge(request)
        if UNREACHABLE_SPEEDUP not in request.target_speedups.values():
            return verdict
        rough = {
            name: Ratio(1.1 * of.value, 0.9 * of.value, 1.3 * of.value)
            for name, of in verdict.ratios.items()
        }
        return replace(verdict, ratios=rough, labels=(Label(EARLY_STOPPED, "a first look"),))


def test_what_a_run_opens_with_is_measured_in_full_once_it_is_verified(store, run):
    evaluator = Glancing()
    asked = opened(make_search(store, run, operators=variants()), evaluator, evaluations=2)
    assert asked[:3] == [Fidelity.SEARCH, Fidelity.VERIFY, Fidelity.SEARCH]
    first, verified_then, again, *_ = store.steps(run.id)
    assert first.program == verified_then.program == again.program
    assert again.operator == REMEASURE
    leader = make_search(store, run).leader
    assert leader.evaluations == 2
    ratio = Ratio.exp(leader.fitness)
    assert (ratio.high - ratio.low) / ratio.value < 0.1


def test_the_first_program_is_measured_in_full_by_a_resume_where_the_run_was_stopped_before(
    store, run
):
    def stop_once_verified(told):
        if told.ticket.operator == VERIFY:
            pipeline.request_stop("stopped")

    search, limits = make_search(store, run, operators=variants()), from_config(LIMITS)
    pipeline = Pipeline(
        search, Glancing(), limits, listeners=[stop_once_verified], open_verified=True
    )
    asyncio.run(pipeline.run())
    for _ in range(2):
        opened(make_search(store, run, operators=variants()), Glancing(), **LIMITS)
    made = [step for step in store.steps(run.id) if step.operator == REMEASURE]
    assert [step.program for step in made] == [next(iter(store.steps(run.id))).program]


def test_a_run_with_a_verified_program_is_resumed_without_an_opening(store, run):
    run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=2)
    evaluator = Recording()
    opened(make_search(store, run), evaluator, evaluations=8)
    assert evaluator.asked[0][0] is not Fidelity.VERIFY
    assert [beside for _, beside in evaluator.asked[:4]] == [1, 2, 3, 4]


def test_where_the_first_programs_fail_the_others_do_not_wait_for_long(store, run):
    evaluator = Recording(fails=True)
    asked = opened(make_search(store, run, operators=variants()), evaluator, evaluations=9)
    assert asked == 9 * [Fidelity.SEARCH]
    assert [beside for _, beside in evaluator.asked[:7]] == [1, 1, 1, 1, 2, 3, 4]


@pytest.mark.sample(1)
@pytest.mark.parametrize("stopped_at", [1, 2], ids=["the first program", "its verification"])
def test_an_opening_that_was_stopped_goes_on_when_the_run_is_resumed(store, run, stopped_at):
    stalling = Recording(stalls_at=stopped_at)

    async def begin() -> None:
        search, limits = make_search(store, run, operators=variants()), from_config(LIMITS)
        pipeline = Pipeline(search, stalling, limits, drain_s=0.01, open_verified=True)
        running = asyncio.create_task(pipeline.run())
        while len(stalling.asked) < stopped_at:
            await asyncio.sleep(0.001)
        pipeline.request_stop("stopped")
        await running

    asyncio.run(begin())
    [left] = store.open_tickets(run.id)
    evaluator = Recording()
    opened(make_search(store, run, operators=variants()), evaluator, **LIMITS)
    due = [(Fidelity.SEARCH, 1), (Fidelity.VERIFY, 1)][stopped_at - 1 :]
    assert evaluator.asked[: len(due)] == due
    assert store.evaluation(run.id, left.sequence) is not None
    instances = [step.program for step in verified(store, run)]
    assert len(instances) == len(set(instances))


def test_a_run_that_took_over_verdicts_verifies_the_best_of_them_first(store, run):
    judge = Recording()
    run_to_end(make_search(store, run, operators=variants()), judge, evaluations=3)
    steps = store.judged_steps(
        run.id, run.task.revision, Judge(judge.device_class, judge.evaluator_version)
    )
    second = store.create_run(name="second", task=run.task, config=run.config, seed=0, steps=steps)
    asked = opened(make_search(store, second, operators=variants()), Recording(), evaluations=3)
    assert asked[0] is Fidelity.VERIFY
    assert asked.count(Fidelity.SEARCH) == 3


def test_models_are_asked_while_a_run_opens(store, run):
    model, sent = ScriptedModel(latency_s=0.01), []

    class Counting(Recording):
        async def evaluate(self, request):
            sent.append(len(model.asked))
            return await super().evaluate(request)

    search = make_search(store, run, operators=variants() | writer(), model=model)
    asked = opened(search, Counting(), evaluations=6)
    assert asked[1] is Fidelity.VERIFY
    assert sent[1] > 0


def test_a_run_that_opened_crowns_whom_it_would_have_crowned(store, run):
    """The leader meets the runner-up, though somebody slower has been verified before."""
    judge = Sobering(searched={0: 1.2, 2: 2.02, 3: 2.0}, verified={0: 1.2, 2: 1.97, 3: 2.1})
    opened(make_search(store, run, operators=variants()), Recording(judge=judge), evaluations=3)
    assert champion(store, run).ratio == around(2.1)
