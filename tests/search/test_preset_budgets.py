"""A mechanism that a run cannot come to is named before the run starts; no preset has one.

Invariant: a search whose limits end it before its method acts, or before it can stand still, says
so with the setting and the limit.
"""

import asyncio
import re

import pytest

from evolve.app import components
from evolve.app.budget import DEFAULT_STAGNATION, stagnation_notes
from evolve.app.config.locate import config_dir
from evolve.search.execution.firing import too_late
from evolve.search.execution.pipeline import Pipeline
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings
from tests.search.models import ScriptedModel
from tests.search.preset_run import MODEL, other_programs

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


@pytest.mark.sample(6)
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
        (("search=k_search", "termination.proposals=5"), "operators.world_model.window"),
        (("search=avo", "termination.proposals=12"), "operators.supervise.rescue_after"),
        (("search=adaevolve", "termination.proposals=25"), "archive.patience"),
        (("search=cuda_agent", "operators.repair.share=0.01"), "operators.repair.share"),
    ],
)
def test_a_mechanism_that_the_run_cannot_come_to_is_named_with_the_limit(words, setting):
    (line,) = said(*words, *MODEL)
    assert line.startswith(f"{setting} has no effect")
    used, limit = re.search(r"\((\d+) of (\d+) proposals used\)", line).groups()
    assert used == limit


def test_a_run_that_ends_before_it_can_stand_still_is_told_so():
    for words, limit in {
        ("search=cuda_agent", "termination.proposals=20"): "termination.proposals=20",
        ("search=kernel_evolve", "termination.evaluations=90"): "termination.evaluations=90",
    }.items():
        (line,) = stagnation_notes(settings(*words, *MODEL))
        assert line.startswith("termination.stagnation=")
        assert f"has no effect: the run ends before, by {limit}" in line
    with_default = settings("termination.evaluations=40")
    assert not [*stagnation_notes(with_default)]
    assert settings()["termination"]["stagnation"] == DEFAULT_STAGNATION


@pytest.mark.sample(8)
@pytest.mark.parametrize("preset", ASKING)
def test_every_preset_lasts_long_enough_to_stand_still(preset: str):
    assert not [*stagnation_notes(settings(f"search={preset}", *MODEL))]


@pytest.mark.slow
def test_a_run_says_so_before_its_first_step(store: Store):
    heard: list[tuple[str, int]] = []
    words = ("search=mcts", "selection.dead_stale=100", *MODEL)
    config = settings("name=demo", *words) | {"audit": []}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
    search = components.build_search(store, run, config, model=ScriptedModel(script=other_programs))
    session = Pipeline(
        search,
        SyntheticEvaluator(),
        components.build_termination(config),
        say=lambda line: heard.append((line, store.next_sequence(run.id))),
        serial=True,
        verify=False,
    )
    asyncio.run(session.run())
    assert [(line.partition(" ")[0], step) for line, step in heard] == [("selection.dead_stale", 0)]
