"""Times of calls recorded as a graph, without a GPU: what is made of them.

Invariants:
- plain calls decide unless the task asks for graphs;
- by graphs, who cannot be recorded is held with its plain calls against the others' graphs;
- where the reference cannot be recorded, plain calls decide;
- whose process ends over being recorded is given up, and nobody else is blamed for it;
- who is wrong when replayed has no such time in any sitting; whose outputs are wrong now and then
  is convicted where graphs decide;
- a task file names the times that fitness is by, or is refused in words.
"""

import math

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, GraphSamples, Status
from evolve.core.task import Task
from evolve.worker.base.faults import CandidateFault
from evolve.worker.build.cache import BuildCache
from evolve.worker.correctness.cases import load_task
from evolve.worker.devices.window import TimedCase
from evolve.worker.judge.stages import check
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.session.candidate_session import Candidate, CandidateSession
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.plan import PLANS
from evolve.worker.session.prepared_task import PreparedTasks
from evolve.worker.timing.graph_timing import (
    GraphTimes,
    Measured,
    drop_wrong,
    graph_samples,
    judge_graphs,
    time_graphs,
)
from evolve.worker.timing.interleaved_blocks import PairTimes
from tests.worker.judging import task_source
from tests.worker.serving import RELU_TASK, forward
from tests.worker.turns import TurnsDevice

PLAIN = {"candidate": [20e-6, 20e-6], "eager": [30e-6, 30e-6]}
SOURCE = task_source("x * 2", "[torch.rand(8)]")


def measured(**recorded):
    return Measured(PairTimes(blocks={"case": PLAIN}), GraphTimes(blocks={"case": recorded}))


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
    recorded = GraphTimes(blocks={"case": {"candidate": [2e-6], "eager": [8e-6]}})
    recorded.give_up("case", "candidate", "it waits for the device")
    one = Measured(PairTimes(blocks={"case": PLAIN}), recorded)
    assert not one.has_graph("case", "eager")
    assert graph_samples([one], "case", {}) == GraphSamples(
        ms={"eager": [[0.008]]}, why_not={"candidate": "it waits for the device"}
    )


def test_nothing_is_stored_of_a_case_that_was_not_recorded():
    plain = Measured(PairTimes(blocks={"case": PLAIN}), GraphTimes())
    assert graph_samples([plain], "case", {}) == GraphSamples()


@pytest.mark.parametrize(("extra", "rule"), [("", "calls"), ("TIMING = 'graph'", "graph")])
def test_a_task_file_names_the_times_that_fitness_is_by(extra, rule):
    assert load_task(Task(name="probe", source=SOURCE + extra)).timing == rule


def test_other_times_are_refused_in_words():
    with pytest.raises(UsageError, match="timing is 'events'; choose one of calls, graph"):
        load_task(Task(name="probe", source=SOURCE + "TIMING = 'events'"))


CALLS = 4
COUNTED = """
self.n = getattr(self, "n", 0) + 1
{}
return right(x)
"""
RIGHT = forward(COUNTED.format("pass"))
GONE = forward(COUNTED.format("if self.n > 8:\n    os._exit(0)"))  # in the first block
IDLE = forward(COUNTED.format("if self.n > 8:\n    return torch.zeros_like(x)"))
AT_TIMES = forward(COUNTED.format("if self.n > 8 and self.n % 2:\n    return torch.zeros_like(x)"))


@pytest.fixture
def recorded(launcher, tmp_path, monkeypatch):
    """What `time_graphs` gives for programs by side, on a CPU with the turns of a GPU."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # a lock of its own
    device = TurnsDevice()
    device_lock = DeviceLock(device, HostLock("cpu"))
    session = CandidateSession(device, launcher, BuildCache(tmp_path / "cache"), device_lock, 5.0)
    warm = PreparedTasks(device).get(RELU_TASK)

    def record(**sources):
        sides = {name: Candidate(source) for name, source in sources.items()}
        checked = Candidate(RIGHT)  # the others make outputs like it, but only for some calls
        with session.interruptible(checked, warm.cases) as runner:
            check(session, runner, checked, warm, PLANS[Fidelity.CHECK])
        layouts = dict.fromkeys(sides, checked.layouts["default"])
        case = TimedCase(
            warm=warm.timed[0], calls=CALLS, layouts=layouts, blocks=device.blocks, recorded=True
        )
        processes = {name: session.loaded(who, warm.timed) for name, who in sides.items()}
        try:
            for process in processes.values():
                device.window().warm_up(process, case, layouts["eager"], 1 << 20)
            pair = PairTimes(overhead={"default": 0.0})
            return time_graphs(device, processes, [case, case], pair)
        finally:
            for process in processes.values():
                process.close()

    return record


@pytest.mark.parametrize("gone", ["candidate", "elite", "eager"])
def test_a_process_that_ends_while_it_is_recorded_is_given_up_and_blames_nobody(recorded, gone):
    found = recorded(**{"candidate": RIGHT, "elite": RIGHT, "eager": RIGHT, gone: GONE})
    assert set(found.blocks["default"]) == {"candidate", "elite", "eager"} - {gone}
    assert "exit code 0" in found.why_not["default", gone]
    judge_graphs(found, "graph")
    assert not found.wrong


@pytest.mark.parametrize("rule", ["calls", "graph"])
def test_who_computes_nothing_when_replayed_has_no_such_times_in_any_sitting(recorded, rule):
    found = recorded(candidate=IDLE, eager=RIGHT)
    judge_graphs(found, rule)
    assert set(found.blocks["default"]) == {"eager"}
    earlier = measured(candidate=[2e-6], eager=[8e-6])
    earlier.recorded.blocks["default"] = earlier.recorded.blocks["case"]
    assert set(drop_wrong([earlier, Measured(PairTimes(), found)])) == {("default", "candidate")}
    assert not earlier.has_graph("default", "eager")


def test_who_leaves_work_out_of_some_calls_is_convicted_where_graphs_decide(recorded):
    found = recorded(candidate=AT_TIMES, eager=RIGHT)
    with pytest.raises(CandidateFault, match=r"wrong when replayed, \d+ of \d+ outputs") as caught:
        judge_graphs(found, "graph")
    assert caught.value.status is Status.WRONG_VALUE
    found = recorded(candidate=RIGHT, elite=AT_TIMES, eager=RIGHT)
    judge_graphs(found, "graph")
    assert set(found.wrong) == {("default", "elite")}
