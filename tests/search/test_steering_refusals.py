"""Changes of a search that cannot be meant: refused in one line, and nothing is stored."""

from collections.abc import Mapping
from typing import Any

import pytest

from evolve.core.errors import UsageError
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.core.run_store.steering import SteeringKind
from evolve.search.steering import MAX_EVENTS, MAX_NOTE, steer
from evolve.search.termination import Raisable, Rule, from_config
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SEED_SOURCE, synthetic_task


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("faster", "", "steering 'faster' is unknown; there are note, pin"),
        ("pin", "99", "has no step 99; it has none yet"),
        ("pin", "abc", "needs the number of the step"),
        ("pin", "9" * 40, "needs the number of the step"),
        ("ban", "-1", "needs the number of the step"),
        ("program", " \n", "the program is empty"),
        ("program", "x" * 200_001, "may have 200,000 characters"),
        ("note", "x" * (MAX_NOTE + 1), "may have 4,000 characters"),
        ("budget", "usd=5", "names no limit of the run; it has evaluations"),
        ("budget", "evaluations=-5", "above zero and at most 100 times"),
        ("budget", "evaluations=1.5", "above zero"),
        ("budget", "evaluations=100000000", "at most 100 times the limit"),
        ("budget", "evaluations=inf", "above zero"),
        ("budget", "more", "names no limit"),
    ],
)
def test_what_cannot_be_meant_is_refused(store: Store, kind: str, value: str, said: str) -> None:
    config = {"baseline": "eager", "termination": {"evaluations": 20}}
    run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=7)
    with pytest.raises(UsageError, match=said) as refused:
        steer(store, run, kind, value)
    assert "\n" not in str(refused.value)
    assert store.steering(run.id) == []


@pytest.mark.parametrize(
    ("limit", "old", "added"),
    [
        ("wall_time", "11000d", "11000d"),
        ("wall_time", "1" + 300 * "0" + "s", "1" + 302 * "0"),
        ("tokens", 10**15, "1"),
        ("tokens", 10**400, "1"),
        ("usd", 1e308, "1e308"),
    ],
)
def test_a_limit_is_not_raised_beyond_what_can_be_counted(
    limit: str, old: object, added: str
) -> None:
    rule = Raisable({limit: old}, from_config)
    with pytest.raises(UsageError, match=f"^budget '{limit}=.* add less$"):
        rule.raise_limit(f"{limit}={added}")
    assert rule.limits == {limit: old}


def test_a_limit_that_the_rule_refuses_stays_as_it_was() -> None:
    def make(limits: Mapping[str, Any]) -> Rule:
        if limits["evaluations"] > 10:
            raise UsageError("too many")
        return from_config(limits)

    rule = Raisable({"evaluations": 6}, make)
    with pytest.raises(UsageError, match="too many"):
        rule.raise_limit("evaluations=5")
    assert rule.limits == {"evaluations": 6}


def test_a_program_that_is_not_known_to_be_correct_cannot_be_pinned(
    store: Store, run: RunRow
) -> None:
    ticket = store.ask(run.id, "by hand", ())
    store.propose(ticket, Proposal(program=Program(f"{SEED_SOURCE}\n\nMINE = 1\n")))
    with pytest.raises(UsageError, match="not known to be correct"):
        steer(store, run, "pin", "0")


def test_a_run_that_was_steered_as_often_as_it_may_be_can_still_be_ended(
    store: Store, run: RunRow
) -> None:
    for _ in range(MAX_EVENTS - 1):
        store.steer(run.id, SteeringKind.NOTE, "again")
    steer(store, run, "pause")
    with pytest.raises(UsageError, match="which is the most"):
        steer(store, run, "note", "one more")
    assert steer(store, run, "continue").kind == "continue"
    assert steer(store, run, "end").kind == "end"


@pytest.mark.parametrize(
    ("kind", "said"), [("pause", "is paused"), ("continue", "is not paused"), ("end", "is to end")]
)
def test_a_state_that_a_run_has_already_is_refused(
    store: Store, run: RunRow, kind: str, said: str
) -> None:
    if kind != "continue":
        steer(store, run, kind)
    held = store.steering(run.id)
    with pytest.raises(UsageError, match=f"'demo' {said} already"):
        steer(store, run, kind)
    assert store.steering(run.id) == held
