"""Times of calls recorded as a graph, without a GPU: what is made of them.

Invariants:
- plain calls decide unless the task asks for graphs;
- by graphs, who cannot be recorded is held with its plain calls against the others' graphs;
- where the reference cannot be recorded, plain calls decide;
- a task file names the times that fitness is by, or is refused in words.
"""

import math

import pytest

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.clock import PairTimes
from evolve.worker.recorded import Measured, Recorded, stored
from evolve.worker.taskfile import load_task
from tests.worker.judging import task_source

PLAIN = {"candidate": [20e-6, 20e-6], "eager": [30e-6, 30e-6]}
SOURCE = task_source("x * 2", "[torch.rand(8)]")


def measured(**recorded):
    return Measured(PairTimes(blocks={"case": PLAIN}), Recorded(blocks={"case": recorded}))


def ratio(rule, **recorded):
    return math.exp(measured(**recorded).log_ratio("case", "eager", rule))


@pytest.mark.parametrize(
    ("rule", "recorded", "expected"),
    [
        ("calls", {"candidate": [2e-6], "eager": [8e-6]}, 1.5),
        ("graph", {"candidate": [2e-6], "eager": [8e-6]}, 4.0),
        ("graph", {"eager": [8e-6]}, 0.4),
        ("graph", {"candidate": [2e-6]}, 1.5),
        ("graph", {}, 1.5),
    ],
)
def test_the_rule_and_what_could_be_recorded_decide_on_the_ratio(rule, recorded, expected):
    assert ratio(rule, **recorded) == pytest.approx(expected)


def test_a_side_given_up_has_no_times_and_a_reason():
    recorded = Recorded(blocks={"case": {"candidate": [2e-6], "eager": [8e-6]}})
    recorded.give_up("case", "candidate", "it waits for the device")
    one = Measured(PairTimes(blocks={"case": PLAIN}), recorded)
    assert not one.is_recorded("case", "eager")
    assert stored([one], "case") == {
        "ms": {"eager": [[0.008]]},
        "why_not": {"candidate": "it waits for the device"},
    }


def test_nothing_is_stored_of_a_case_that_was_not_recorded():
    assert stored([Measured(PairTimes(blocks={"case": PLAIN}), Recorded())], "case") == {}


@pytest.mark.parametrize(("extra", "rule"), [("", "calls"), ("TIMING = 'graph'", "graph")])
def test_a_task_file_names_the_times_that_fitness_is_by(extra, rule):
    assert load_task(Task(name="probe", source=SOURCE + extra)).timing == rule


def test_other_times_are_refused_in_words():
    with pytest.raises(UsageError, match="timing is 'events'; choose one of calls, graph"):
        load_task(Task(name="probe", source=SOURCE + "TIMING = 'events'"))
