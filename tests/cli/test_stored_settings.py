"""Configurations of runs that go on: older ones, and those that a resume changes.

Invariants:
1. Settings that have come since are at their defaults, and a limit that was not there is none.
2. Budgets, models and trackers that a resume names are the run's from then on; where it is judged
   is of that session alone.
"""

import asyncio
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app import components
from evolve.app.config.diff import differences, flatten
from evolve.app.config.upgrade import complete, completed
from evolve.app.device import as_judged
from evolve.cli.commands.run.resume import overridden
from evolve.core.errors import UsageError
from evolve.core.protocols import Progress
from evolve.report.run.cost_report import budget_lines
from evolve.report.run.facts import gather
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SyntheticEvaluator
from tests.cli.at_terminal import search
from tests.cli.recording import settings

LATER = ("device.ids", "llm.trace", "termination.speed_of_light", "store.reuse", "deterministic")


def without(*names: str) -> dict:
    config = deepcopy(settings())
    for name in names:
        *above, last = name.split(".")
        inner = config
        for key in above:
            inner = inner[key]
        del inner[last]
    return config


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*LATER, "llm", "sandbox", "schedule", "knowledge", "opponents"])
def test_what_a_stored_configuration_lacks_is_at_its_default(name: str):
    assert complete(without(name)) == settings()


def test_a_bandit_whose_prior_was_in_dollars_has_that_of_today():
    today = settings("schedule=bandit", "schedule.explore=0.3")
    node = {name: value for name, value in today["schedule"].items() if name != "prior_asks"}
    stored = {**today, "schedule": {**node, "prior_usd": 0.25}}
    assert complete(stored) == today
    components.build_all(complete(stored))
    assert differences(complete(stored), today) == {}
    theirs = {**today, "schedule": {"_target_": "mine.Bandit", "prior_usd": 0.25}}
    assert complete(theirs) == theirs


def in_old_modules(config: dict) -> dict:
    """A configuration as it was stored while every operator was a module of `operators` itself."""
    nodes = {
        name: node and {**node, "_target_": re.sub(r"\.(llm|local)\.", ".", node["_target_"])}
        for name, node in config["operators"].items()
    }
    return {**config, "operators": nodes}


@pytest.mark.sample(2)
@pytest.mark.parametrize("preset", ["portfolio", "shinka", "mtmc", "kernel_evolve"])
def test_operators_that_have_moved_since_are_found_where_they_are_now(preset: str):
    today = settings(f"search={preset}", "llm.model=openai/x")
    old = in_old_modules(today)
    assert old != today
    assert complete(old) == today
    components.build_all(complete(old))


@pytest.mark.slow
def test_a_run_whose_operators_have_moved_since_is_continued(recorded: Path):
    with Store.open(recorded) as store:
        run = store.run("demo")
        old = in_old_modules(dict(run.config))
        assert old != run.config
        store.claim(run.id)
        store.reconfigure(run.id, old)
        store.release(run.id, run.state, run.reason)
        assert differences(complete(old), run.config) == {}
    assert sit(recorded, "termination.evaluations=16").state == "finished"


def test_a_limit_that_was_not_set_is_not_set_now():
    stored = without("termination.stagnation")
    assert complete(stored)["termination"]["stagnation"] is None
    assert "stagnation" not in components.build_termination(complete(stored)).usage(Progress())


def test_nothing_that_is_stored_is_changed():
    given = settings("device=cpu", "llm.model=openai/x", "termination.usd=5", "archive=topk")
    assert complete(given) == given


def test_every_setting_of_a_complete_configuration_is_there():
    assert {*dict(flatten(complete(without(*LATER))))} == {*dict(flatten(settings()))}


def test_a_run_from_before_several_gpus_is_continued(recorded: Path):
    with Store.open(recorded) as store:
        run = store.run("demo")
        old = {**run.config, "device": {"kind": "auto", "slots": None, "python": None, "run": None}}
        known = completed(replace(run, config=old))
        assert as_judged(known.config, store, known)["device"]["ids"] is None
        assert differences(complete(old), run.config) == {}


def sit(path: Path, *words: str) -> RunRow:
    """Continue the recorded run as `evolve resume demo WORDS` does; the run as stored then."""
    with Store.open(path) as store:
        run = completed(store.run("demo"))
        config = overridden(run.config, words)
        assert asyncio.run(search(store, run, config, SyntheticEvaluator())) == 0
        return store.run("demo")


def test_a_budget_that_a_resume_gives_is_the_runs_from_then_on(recorded: Path):
    more = sit(recorded, "termination.evaluations=16")
    assert more.config["termination"]["evaluations"] == 16
    with Store.open(recorded, read_only=True) as store:
        assert "16" in [line.limit for line in budget_lines(gather(store, "demo"))]
    assert sit(recorded).config == more.config


def test_a_device_that_a_resume_names_is_of_that_sitting(recorded: Path):
    run = sit(recorded, "device.slots=2", "sandbox.require=uid")
    assert run.config["device"]["slots"] is None
    assert run.config["sandbox"]["require"] == "none"


def test_whoever_does_not_hold_the_run_changes_nothing_of_it(recorded: Path):
    with Store.open(recorded) as holder, Store.open(recorded) as other:
        run = completed(holder.run("demo"))
        holder.claim(run.id)
        config = overridden(run.config, ["termination.evaluations=99"])
        with pytest.raises(UsageError, match="continued by another process"):
            asyncio.run(search(other, run, config, SyntheticEvaluator()))
        assert holder.run("demo").config["termination"]["evaluations"] == 12
