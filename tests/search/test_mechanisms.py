"""Mechanisms of published methods fire in their presets, at the presets' own budgets.

Invariants:
1. Summaries come at their interval, as often as the source's run has them.
2. POLCA measures the head of its queue again: by mean, or by upper bound.
3. GEAK debugs what failed while nothing passes, up to five times, and else starts anew.
4. Subtrees of KernelPro's tree search that stand still are left.
5. A mechanism that the run cannot come to is named before it starts; no preset has one.
6. A variant of a preset has the preset's values.
"""

import asyncio
import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from evolve.app import components
from evolve.app.config.diff import flatten
from evolve.app.config.locate import config_dir
from evolve.core.evaluation import Status
from evolve.core.model import ModelReply, ModelRequest
from evolve.core.protocols import Elite
from evolve.search.execution.firing import too_late
from evolve.search.execution.pipeline import Pipeline
from evolve.store import Store, TicketState
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings
from tests.search.models import ScriptedModel, answer
from tests.search.preset_run import MODEL, other_programs, searched


def without_tuning(store: Store, preset: str, **parts_: Any) -> list[Any]:
    """The steps of a run to the end of its own budget."""
    words = (f"search={preset}", "operators.tune=null")
    _, run = searched(store, *words, **parts_)
    return list(store.steps(run.id))


def summarised(request: ModelRequest, number: int) -> ModelReply:
    """A program that was never seen, or a summary that says nothing."""
    is_summary = request.purpose == "summarise"
    return answer("- nothing yet") if is_summary else other_programs(request, number)


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


def test_geak_debugs_what_failed_while_nothing_passes(store: Store):
    """Of 84 tickets 4 were repairs, although 73 of 80 programs failed."""
    found = geak(store, 1.0)
    # 8 new ones, 5 rounds of 8 that debug them, 8 new ones, debugged to the end of the 80
    assert found == {"seed": 1, "rewrite_full": 16, "repair": 64}


def test_geak_starts_anew_when_one_passes(store: Store):
    assert geak(store, 0.0)["repair"] == 0


def test_geak_reflects_on_most_failures_where_nine_of_ten_fail(store: Store):
    assert geak(store, 0.92)["repair"] > 20


# KernelPro's tree search


def test_a_subtree_stands_still_long_enough_to_be_left_within_the_budget_of_mcts(store: Store):
    """The largest count of steps without a rise was 60, at the root, which is never left."""
    without_tuning(store, "mcts")
    run = store.run("demo")
    search = components.build_search(store, run, run.config, model=ScriptedModel())
    limit = run.config["selection"]["dead_stale"]
    roots = {elite.program for elite in search.population.roots}
    stale = [each.stale for name, each in search.population.visited.items() if name not in roots]
    assert max(stale) >= limit


# Budgets


ASKING = sorted({path.stem for path in (config_dir() / "search").glob("*.yaml")})


def said(*words: str) -> list[str]:
    """What a search says of its budget before it starts, without any store of its own."""
    config = settings(*words)
    policy, archive = components.build_selection(config), components.build_archive(config)
    operators = components.build_operators(config)
    built = [("archive", archive), ("selection", policy)]
    built += [(f"operators.{name}", each.operator) for name, each in operators.items()]
    built += [
        (f"methods.{name}.selection", method.selection)
        for name, method in components.build_methods(config).items()
    ]
    return list(too_late(built, components.build_termination(config)))


@pytest.mark.parametrize("preset", ASKING)
def test_every_mechanism_of_a_preset_can_fire_within_its_budget(preset: str):
    assert said(f"search={preset}", *MODEL) == []


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (("search=mcts", "selection.dead_stale=100"), "selection.dead_stale"),
        (("search=shinka", "operators.summarise.every=60"), "operators.summarise.every"),
        (("search=geak", "operators.repair.share=0.01"), "operators.repair.share"),
        (("search=kernel_smith", "archive.most=6", "archive.patience=99"), "archive.patience"),
        (("search=openevolve", "termination.proposals=50"), "archive.interval"),
    ],
)
def test_a_mechanism_that_the_run_cannot_come_to_is_named_with_the_limit(words, setting):
    (line,) = said(*words, *MODEL)
    assert line.startswith(f"{setting} has no effect")
    assert "proposals used" in line


def test_a_run_says_so_before_its_first_step(store: Store):
    heard: list[tuple[str, int]] = []
    words = ("search=mcts", "selection.dead_stale=100", *MODEL)
    config = settings("name=demo", *words) | {"audit": []}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
    search = components.build_search(store, run, config, model=ScriptedModel(script=other_programs))
    sitting = Pipeline(
        search,
        SyntheticEvaluator(),
        components.build_termination(config),
        say=lambda line: heard.append((line, store.next_sequence(run.id))),
        serial=True,
        verify=False,
    )
    asyncio.run(sitting.run())
    assert [(line.partition(" ")[0], step) for line, step in heard] == [("selection.dead_stale", 0)]


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
    assert differ <= others
