"""Runs that an older version stored.

Invariant: settings that have come since are at their defaults, and a limit that was not there is
none.
"""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.cli import parts
from evolve.cli.config.complete import complete, completed
from evolve.cli.device import as_judged
from evolve.cli.differences import differences, flatten
from evolve.core.protocols import Progress
from evolve.store import Store
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


@pytest.mark.parametrize("name", [*LATER, "llm", "sandbox", "schedule", "knowledge", "opponents"])
def test_what_a_stored_configuration_lacks_is_at_its_default(name: str):
    assert complete(without(name)) == settings()


def test_a_limit_that_was_not_set_is_not_set_now():
    stored = without("termination.stagnation")
    assert complete(stored)["termination"]["stagnation"] is None
    assert "stagnation" not in parts.build_termination(complete(stored)).usage(Progress())


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
