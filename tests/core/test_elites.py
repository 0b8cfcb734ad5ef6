"""Elites, their order, and the descriptors that an archive makes of their texts.

Invariants:
1. The order of elites is total: by fitness, then by age, then by name.
2. A population is the sequence of its elites, best first.
3. A text is described once for a program, and only for what is missing.
4. Tunings are no steps.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from evolve.core.archive import AddStatus, Offer, described
from evolve.core.elites import Elite, Population, best_of, rank
from evolve.core.measurement import Interval
from evolve.core.records import Account, RunRow
from evolve.core.task import Task
from evolve.testing.facts import MemoryFacts
from evolve.testing.parts import make_context
from evolve.testing.synthetic import synthetic_task


def elite(program: str, value: float = 0.0, sequence: int = 1, **more) -> Elite:
    return Elite(
        program=program,
        assignment={},
        fitness=Interval(value, value - 0.1, value + 0.1),
        descriptors=more.pop("descriptors", {}),
        sequence=sequence,
        operator="mutate",
        **more,
    )


FASTEST, OLDEST = elite("z", 2.0, 9), elite("y", 1.0, 2)
FIRST, LAST = elite("a", 1.0, 3), elite("b", 1.0, 3)


class Held(Population):
    """A population of elites in a given order."""

    turn, islands, roots = 0, {}, ()
    children = elite = slot = visits = None

    def __init__(self, ranked) -> None:
        self.ranked = ranked


def test_elites_are_ordered_by_fitness_then_age_then_name():
    found = [LAST, FIRST, FASTEST, OLDEST]
    assert sorted(found, key=rank) == [FASTEST, OLDEST, FIRST, LAST]
    assert best_of(found) == FASTEST
    assert best_of(found[:2]) == FIRST
    assert best_of([]) is None


def test_a_population_is_the_sequence_of_its_elites():
    held = Held([FASTEST, OLDEST, FIRST])
    assert (len(held), list(held), held[0], held[1:]) == (3, held.ranked, FASTEST, [OLDEST, FIRST])


def test_the_step_of_an_elite_leaves_tunings_out():
    assert (elite("a", sequence=7).step, elite("a", sequence=7, tunings=3).step) == (7, 4)


def test_an_offer_is_true_if_the_elite_was_taken():
    assert [bool(Offer(status)) for status in AddStatus] == [False, True, True]
    assert AddStatus.NOT_ADDED < AddStatus.IMPROVED < AddStatus.NEW


@pytest.mark.parametrize(
    ("has", "known", "found", "reads"),
    [
        ({}, None, {"length": 3, "first": "s"}, 2),
        ({"length": 9}, None, {"length": 9, "first": "s"}, 1),
        ({"length": 9, "first": "x"}, None, {"length": 9, "first": "x"}, 0),
        ({}, {"length": 8}, {"length": 8, "first": "s"}, 1),
        ({"kernels": 1}, {"length": 8, "first": "y"}, {"kernels": 1, "length": 8, "first": "y"}, 0),
    ],
)
def test_a_text_is_described_once_for_what_is_missing(has, known, found, reads):
    said = []

    def source() -> str:
        said.append("read")
        return "src"

    archive = SimpleNamespace(describes={"length": len, "first": lambda text: text[0]})
    before = None if known is None else elite("a", descriptors=known)
    given = elite("a", descriptors=has)
    assert described(given, archive, source, before) == elite("a", descriptors=found)
    assert len(said) == reads
    assert described(given, SimpleNamespace(), source) == given


def test_parents_meet_the_elites_of_their_island_if_there_is_one():
    context = make_context(MemoryFacts(task=synthetic_task()), (), sequence=7, elites=[FIRST, LAST])
    assert list(context.peers) == [FIRST, LAST]
    assert replace(context, island=[LAST]).peers == [LAST]
    assert (context.step, replace(context, tunings=3).step) == (7, 4)


def test_a_run_is_measured_against_eager_unless_its_configuration_says_otherwise():
    facts = {"id": 1, "name": "r", "task": Task(name="t", source=""), "seed": 0}
    facts |= {"state": "running", "reason": "", "created": ""}
    assert RunRow(config={}, **facts).baseline == "eager"
    assert RunRow(config={"baseline": "compile"}, **facts).baseline == "compile"
    assert str(Account("user", "me")) == "user me"
