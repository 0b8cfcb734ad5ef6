"""Mechanisms of published methods fire in their presets, at the presets' own budgets.

Invariants:
1. Summaries come at their interval, as often as the source's run has them.
2. POLCA measures the head of its queue again: by mean, or by upper bound.
3. GEAK debugs what failed while nothing passes, up to five times, and else starts anew.
4. Subtrees of KernelPro's tree search that stand still are left.
5. A variant of a preset has the preset's values.
6. K-Search's intents are planted, followed until they stand still, solved or failed, and left.
"""

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest

from evolve.app import components
from evolve.app.config.diff import flatten
from evolve.core.evaluation import Evaluation, Status
from evolve.core.model import ModelReply, ModelRequest
from evolve.core.protocols import Elite, EvaluationRequest
from evolve.store import Store, TicketState
from evolve.testing.synthetic import OPTIMUM, SEED_SOURCE, SyntheticEvaluator, synthetic_task
from operators.llm.intents import Intent, loads
from tests.cli.recording import settings
from tests.search.models import ScriptedModel, answer, towards_the_optimum
from tests.search.preset_run import MODEL, other_programs, reply, searched


def without_tuning(
    store: Store, preset: str, proposals: int | None = None, **parts_: Any
) -> list[Any]:
    """The steps of a run to the end of its own budget, or of the first `proposals` of it."""
    limit = () if proposals is None else (f"termination.proposals={proposals}",)
    words = (f"search={preset}", "operators.tune=null", *limit)
    _, run = searched(store, *words, **parts_)
    return list(store.steps(run.id))


def summarised(request: ModelRequest, number: int) -> ModelReply:
    """A program that was never seen, or a summary that says nothing."""
    is_summary = request.purpose == "summarise"
    return answer("- nothing yet") if is_summary else other_programs(request, number)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "every", "least"), [("shinka", 10, 4), ("polca", 10, 10)])
def test_a_summary_comes_at_its_interval(preset: str, every: int, least: int, store: Store):
    """Of Shinka's summaries two came in place of five: at steps 15 and 36, or 29 and 41."""
    model = ScriptedModel(script=summarised)
    without_tuning(store, preset, model=model)
    steps = [each.memo["step"] for each in model.asked if each.purpose == "summarise"]
    assert len(steps) >= least
    assert steps[0] <= every + 1
    assert {later - earlier for earlier, later in pairwise(steps)} <= {every, every + 1}


# POLCA


def by_hand(store: Store, preset: str, steps: int) -> Counter[bool]:
    """Asks, answers and tells; whether what was measured again was in the head, by the formula.

    The head: the five programs with the highest mean, or mean + 0.1 * sqrt(ln(T + 1) / n).
    """
    config = settings(f"search={preset}", *MODEL, "operators.tune=null") | {"audit": []}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
    search = components.build_search(store, run, config, model=ScriptedModel())
    judge, found = SyntheticEvaluator(noise=0.15), Counter[bool]()

    def bound(elite: Elite, step: int) -> tuple[float, int]:
        bonus = 0.1 * math.sqrt(math.log(step + 1) / elite.evaluations)
        return elite.fitness.value + bonus * preset.endswith("ucb"), elite.sequence

    for step in range(steps):
        ranked = sorted(search.population, key=lambda each: bound(each, step), reverse=True)
        head = {elite.program for elite in ranked[:5]}
        ticket = search.ask()
        assert ticket is not None
        while ticket.state is TicketState.ASKED:
            ticket = search.answered(ticket, longer(ticket.request, step))
        if ticket.state is TicketState.PROPOSED:
            assert ticket.proposal is not None
            if ticket.operator == "remeasure_head" and len(ranked) > 5:
                found[ticket.proposal.program.digest in head] += 1
            search.tell(ticket, judge.judge(search.request(ticket)))
    return found


def longer(request: ModelRequest | None, number: int) -> ModelReply:
    """Programs that are far enough from each other for the net."""
    text = "\n".join(f"V{number}_{place} = {place} * {number}" for place in range(40))
    is_summary = request is not None and request.purpose == "summarise"
    return answer("- nothing yet" if is_summary else f"```python\n{SEED_SOURCE}\n{text}\n```")


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["polca", "polca_ucb"])
def test_polca_measures_the_head_of_its_queue_again(preset: str, store: Store):
    """Of 55 measurements 8 were outside of the head by upper bounds, and its fifth was left out."""
    found = by_hand(store, preset, 110)
    assert found[True] >= 45
    assert not found[False]


# GEAK


def geak(store: Store, failures: float) -> Counter[str]:
    """How many steps each operator has had, of programs that fail so often."""
    judge = SyntheticEvaluator(failures={Status.COMPILE_ERROR: failures})
    steps = without_tuning(store, "geak", judge=judge)
    depth: dict[str, int] = {}
    for step in steps:
        if step.program and step.operator == "repair":
            depth[step.program] = 1 + depth.get(step.parents[0], 0)
    assert max(depth.values(), default=0) <= 5
    return Counter(step.operator for step in steps)


@pytest.mark.slow
def test_geak_debugs_what_failed_while_nothing_passes(store: Store):
    """Of 84 tickets 4 were repairs, although 73 of 80 programs failed."""
    found = geak(store, 1.0)
    # 8 new ones, 5 rounds of 8 that debug them, 8 new ones, debugged to the end of the 80
    assert found == {"seed": 1, "rewrite_full": 16, "repair": 64}


@pytest.mark.slow
def test_geak_starts_anew_when_one_passes(store: Store):
    assert geak(store, 0.0)["repair"] == 0


@pytest.mark.slow  # new starts of GEAK are in the test above
def test_geak_reflects_on_most_failures_where_nine_of_ten_fail(store: Store):
    assert geak(store, 0.92)["repair"] > 20


# KernelPro's tree search


@pytest.mark.slow
def test_a_subtree_stands_still_long_enough_to_be_left_within_the_budget_of_mcts(store: Store):
    """The largest count of steps without a rise was 60, at the root, which is never left."""
    without_tuning(store, "mcts")
    run = store.run("demo")
    search = components.build_search(store, run, run.config, model=ScriptedModel())
    limit = run.config["selection"]["dead_stale"]
    population = search.population
    roots = {elite.program for elite in population.roots}
    stale = [population.visits(one.program).stale for one in population if one.program not in roots]
    assert max(stale) >= limit


class Profiled(SyntheticEvaluator):
    """A judge with a profile: some programs spill, and what limits them differs."""

    def judge(self, request: EvaluationRequest) -> Evaluation:
        verdict = super().judge(request)
        even = len(request.source) % 2 == 0
        share = (
            "memory-bound: 70% of this device's" if even else "compute-bound: 4% of this device's"
        )
        facts = {"spill_bytes": 64.0, "memory_access": "scalar"}
        words = f"  {share} memory rate (9 GB/s)"
        return replace(verdict, feedback=words, descriptors={**verdict.descriptors, **facts})


@pytest.mark.slow
def test_what_tools_find_in_the_tree_search_goes_by_what_limits_the_program(store: Store):
    model = ScriptedModel(script=other_programs)
    without_tuning(store, "mcts", model=model, judge=Profiled())
    prompts = [each.messages[-1].content for each in model.asked]
    found = {
        limit: [prompt for prompt in prompts if f"in its verdict, for the limit {limit}" in prompt]
        for limit in ("memory", "compute")
    }
    assert all(len(each) > 10 for each in found.values())
    assert all("Registers spill" in prompt for each in found.values() for prompt in each)
    assert all("one element at a time" in prompt for prompt in found["memory"])
    assert not any("one element at a time" in prompt for prompt in found["compute"])


# Variants


VARIANTS = {
    "polca_ucb": ("polca", {"selection.priority", "archive.of.priority"}),
    "kernel_smith_strict": (
        "kernel_smith",
        {"operators.edit._target_", "operators.edit.edit_scope", "operators.edit.weight"},
    ),
    "cuda_l1_islands": ("cuda_l1", set()),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_has_the_values_of_its_preset(variant: str):
    """`operators=[seed,edit]` left temperature, top_p, top, diverse and 32K of the paper behind."""
    preset, others = VARIANTS[variant]
    mine, base = (dict(flatten(settings(f"search={name}"))) for name in (variant, preset))
    if variant == "kernel_smith_strict":
        base = {name.replace("rewrite_full", "edit"): value for name, value in base.items()}
        del base["operators.edit.from_scratch"]
    if variant == "cuda_l1_islands":
        assert mine["archive.capacity"] == base["archive.capacity"]
        mine, base = (
            {name: each[name] for name in each if not name.startswith(("archive", "selection"))}
            for each in (mine, base)
        )
    differ = {name for name in mine.keys() | base.keys() if mine.get(name) != base.get(name)}
    assert differ <= others | {"preset"}


# K-Search


def planned(request: ModelRequest, number: int) -> ModelReply:
    """Two intents at every edit, else a program that was never seen."""
    if request.purpose != "world_model":
        return other_programs(request, number)
    known = loads(str(request.memo["tree"]))
    last = [name for name, each in known.items() if not each.is_open][-1]
    ops = [
        {"op": "insert_node", "parent": last, "title": f"intent {number}", "score": 0.7},
        {"op": "insert_node", "parent": "root", "title": f"hard {number}", "difficulty": 5},
    ]
    return answer(f"```json\n{json.dumps({'ops': ops})}\n```")


def trees(model: ScriptedModel) -> list[dict[str, Intent]]:
    """The trees that edits were asked for, in order."""
    plans = [each for each in model.asked if each.purpose == "world_model"]
    return [loads(str(each.memo["tree"])) for each in plans]


@pytest.mark.slow
def test_intents_are_planted_followed_and_left_within_the_budget_of_k_search(store: Store):
    """Each has a window of attempts that improve nothing, and one more that was the best.

    In the first 100 of its 300 answers.
    """
    model = ScriptedModel(script=planned)
    steps = without_tuning(store, "k_search", 100, model=model)
    seen = trees(model)
    assert len(seen) > 100 / 11  # of at most 11 attempts each, where the fifth is the best
    assert all(len(after) == len(before) + 2 for before, after in pairwise(seen))
    counts = [sum(not each.is_open for each in tree.values()) for tree in seen]
    assert counts == list(range(1, len(seen) + 1))
    titles = [step.note.partition(";")[0] for step in steps if step.operator == "world_model"]
    attempts = Counter(titles)
    assert len(attempts) >= len(seen) - 1
    assert all(count >= 5 for count in list(attempts.values())[:-1])
    assert not any("hard" in title for title in titles)  # the cap on difficulty


@pytest.mark.slow  # a model that plans nothing is given an intent below
def test_an_intent_that_fails_is_left_for_another(store: Store):
    judge = SyntheticEvaluator(failures={Status.COMPILE_ERROR: 1.0})
    model = ScriptedModel(script=planned)
    without_tuning(store, "k_search", 60, model=model, judge=judge)
    last = trees(model)[-1]
    assert sum(each.failed for each in last.values()) == len(trees(model)) - 1
    assert max(each.failed for each in last.values()) <= 2
    assert all(each.is_open for name, each in last.items() if name != "root")


def test_a_model_that_plans_nothing_is_given_an_intent(store: Store):
    """Prose in place of edits, and the same program again and again: intents still change."""

    def dull(request: ModelRequest, number: int) -> ModelReply:
        return answer("I see.") if request.purpose == "world_model" else reply(SEED_SOURCE)

    model = ScriptedModel(script=dull)
    words = ("search=k_search", "operators.tune=null", "termination.proposals=30")
    searched(store, *words, model=model)
    assert len(trees(model)) == 30 / 5


# AVO


def towards(request: ModelRequest, number: int) -> ModelReply:
    """A program that may be better, or advice that says nothing."""
    found = towards_the_optimum(request, number)
    return answer("- nothing yet") if request.purpose == "summarise" else reply(found.text)


@pytest.mark.slow
def test_only_what_is_as_fast_as_the_best_enters_the_lineage_of_avo(store: Store):
    model = ScriptedModel(script=towards)
    steps = without_tuning(store, "avo", 100, model=model)
    held = {elite.program: elite for elite in store.slots(store.run("demo").id).values()}
    versions = sorted(held.values(), key=lambda elite: elite.sequence)
    speeds = [elite.fitness.value for elite in versions]
    assert 5 <= len(held) < sum(step.status is Status.CORRECT for step in steps) / 5
    assert all(later >= before - 0.002 for before, later in pairwise(accumulate(speeds, max)))
    assert all(later >= before - 0.002 for before, later in pairwise(speeds))


@pytest.mark.slow
def test_a_supervisor_redirects_a_search_that_stands_still_and_then_rescues_it(store: Store):
    """Every 8 steps without a better program; after 3 redirections four programs at once."""

    model = ScriptedModel(script=summarised)
    judge = SyntheticEvaluator(noise=0.0)  # nothing is better by luck
    without_tuning(store, "avo", 100, model=model, judge=judge)
    told = [
        (each.purpose, each.memo["step"])
        for each in model.asked
        if each.purpose in ("summarise", "rescue")
    ]
    purposes = [purpose for purpose, step in dict.fromkeys(told)]
    assert purposes[:8] == [*["summarise"] * 3, "rescue"] * 2
    rescues = [step for purpose, step in told if purpose == "rescue"]
    assert set(Counter(rescues).values()) == {4}
    starts = [step for _, step in dict.fromkeys(told)]
    assert {later - earlier for earlier, later in pairwise(starts)} == {8}


def test_what_fails_is_mended_four_times_before_the_supervisor_of_avo_redirects(store: Store):
    judge = SyntheticEvaluator(failures={Status.COMPILE_ERROR: 1.0})
    steps = without_tuning(store, "avo", 12, judge=judge, model=ScriptedModel(script=summarised))
    operators = [step.operator for step in steps][1:]
    assert operators[:6] == ["universal", *["repair"] * 4, "supervise"]
    assert operators[6:10] == ["repair"] * 4


# CUDA Agent


@pytest.mark.slow
def test_the_goals_of_cuda_agent_are_set_one_after_the_other(store: Store):
    """From half of the compiled reference's speed, by 0.96 of it, to 1.7 times and more."""
    octaves = [(3, 2), (2, 2), (1, 1), (1, 0), (0, 0)]

    def climbs(request: ModelRequest, number: int) -> ModelReply:
        block, unroll = octaves[min(number, len(octaves) - 1)]
        values = {
            "BLOCK": int(OPTIMUM["BLOCK"]) >> block,
            "UNROLL": int(OPTIMUM["UNROLL"]) >> unroll,
        }
        lines = [f"{name} = {value}" for name, value in ({**OPTIMUM, **values}).items()]
        return reply("\n".join([*lines, f"DRAFT = {number}", "", "class ModelNew:", "    pass"]))

    model = ScriptedModel(script=climbs)
    without_tuning(store, "cuda_agent", model=model)
    jobs = ["".join(message.content for message in each.messages) for each in model.asked]
    words = ("Only another algorithm", "which is near", "is reached")
    found = [word for job in jobs for word in words if word in job]
    assert [word for word, after in pairwise([*found, ""]) if word != after] == list(words)
    assert all("faster than torch.compile" in job or "over torch.compile" in job for job in jobs)


def test_a_program_of_cuda_agent_is_mended_until_it_is_correct(store: Store):
    judge = SyntheticEvaluator(failures={Status.COMPILE_ERROR: 0.9})
    steps = without_tuning(store, "cuda_agent", judge=judge)
    after = [
        (step.status, later.operator)
        for step, later in pairwise(steps)
        if step.operator in ("milestone", "repair")
    ]
    assert {operator for status, operator in after if status is Status.CORRECT} == {"milestone"}
    assert {operator for status, operator in after if status is not Status.CORRECT} == {"repair"}


# CUDA-L1


@pytest.mark.sample(1)
@pytest.mark.parametrize("preset", ["cuda_l1", "cuda_l1_islands"])
def test_a_jump_is_read_beside_similar_hacks_and_measured_again(preset: str, store: Store):
    """The preset ends by its time; 40 evaluations are a part of that."""

    def cheats_then_jumps(request: ModelRequest, number: int) -> ModelReply:
        if request.purpose == "review":
            return answer("HACK: yes\nWHY: it replays a graph.")
        if number == 1:
            return reply(f"{SEED_SOURCE}\nCHEAT = replay_of_graph = {number}\n")
        lines = [f"{name} = {value}" for name, value in OPTIMUM.items()]
        jumped = "\n".join([*lines, "graph = replay_of_graph = 1", "class ModelNew:", "    pass"])
        return reply(jumped) if number == 4 else other_programs(request, number)

    class Finds(SyntheticEvaluator):
        def judge(self, request: EvaluationRequest) -> Evaluation:
            verdict = super().judge(request)
            if "CHEAT" not in request.source:
                return verdict
            return replace(
                verdict, status=Status.HACK, ratios={}, cases=(), feedback="a graph was replayed"
            )

    words = (f"search={preset}", "operators.tune=null", "termination.evaluations=40")
    model = ScriptedModel(script=cheats_then_jumps)
    _, run = searched(store, *words, model=model, judge=Finds(noise=0.0))
    (asked,) = [each for each in model.asked if each.purpose == "review"]
    prompt = asked.messages[-1].content
    assert "a graph was replayed" in prompt  # the run's own
    assert prompt.count(" case>\n") == 3
    steps = list(store.steps(run.id))
    (again,) = [step for step in steps if step.operator == "review"]
    assert again.note == "review: hack yes: it replays a graph."
    assert again.status is Status.CORRECT
    best = max(store.slots(run.id).values(), key=lambda elite: elite.fitness.value)
    assert (best.program, best.evaluations) == (again.program, 2)


@pytest.mark.slow  # a jump that repeats is in the test above
def test_a_jump_that_does_not_repeat_is_measured_a_third_time(store: Store):
    def jumps(request: ModelRequest, number: int) -> ModelReply:
        lines = [f"{name} = {value}" for name, value in OPTIMUM.items()]
        jumped = "\n".join([*lines, "class ModelNew:", "    pass"])
        return reply(jumped) if number == 3 else other_programs(request, number)

    words = ("search=cuda_l1", "operators.tune=null", "termination.evaluations=20")
    judge = SyntheticEvaluator(noise=0.3)
    _, run = searched(store, *words, model=ScriptedModel(script=jumps), judge=judge)
    reviews = [step for step in store.steps(run.id) if step.operator == "review"]
    assert "not within 10%" in reviews[1].note
    counts = Counter(step.program for step in reviews)
    assert max(counts.values()) == 2  # beside the first measurement
