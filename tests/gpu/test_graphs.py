"""Calls recorded as a CUDA graph, timed beside plain ones.

Invariants:
- a launch-bound kernel is timed both ways, and takes less as a graph;
- the task's rule says which ratio counts;
- who cannot be recorded keeps its verdict, and is held with its plain calls against graphs;
- work left out while recording is found, and has no such time.
"""

from dataclasses import replace

from evolve.core.evaluation import Status
from tests.gpu.programs import RIGHT, SMALL, triton_program

BY_GRAPH = replace(SMALL, name="relu2-graph", source=SMALL.source + "\nTIMING = 'graph'\n")
WAITING = triton_program(forward="torch.cuda.synchronize()")
IDLE = triton_program(forward="if torch.cuda.is_current_stream_capturing(): return y")


def graph(verdict):
    (row,) = verdict.samples.values()
    return row["graph"]


def median(rows):
    values = sorted(value for row in rows for value in row)
    return values[len(values) // 2]


def test_a_launch_bound_kernel_is_timed_both_ways(worker):
    verdict = worker.evaluate(RIGHT, SMALL, fidelity="search")
    found = graph(verdict)
    plain = verdict.cases[0].times_ms
    print(found.get("why_not"), {side: median(rows) for side, rows in found["ms"].items()}, plain)
    print(found["ratios"], verdict.ratios)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(found["ms"]) == {"candidate", "eager"}
    for side in ("candidate", "eager"):
        assert median(found["ms"][side]) < plain[side].value
    assert verdict.environment["timing"] == "calls"


def test_the_tasks_rule_says_which_ratio_counts(worker):
    verdict = worker.evaluate(RIGHT, BY_GRAPH, fidelity="search")
    assert verdict.environment["timing"] == "graph"
    assert verdict.ratios["eager"].to_json() == graph(verdict)["ratios"]["eager"]


def test_who_cannot_be_recorded_is_held_with_plain_calls_against_graphs(worker):
    verdict = worker.evaluate(WAITING + "\n# waits\n", BY_GRAPH, fidelity="search")
    found = graph(verdict)
    print(found.get("why_not"), verdict.ratios)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(found["ms"]) == {"eager"}
    assert "candidate" in found["why_not"]
    assert verdict.ratios["eager"].value < 1


def test_work_left_out_while_recording_is_found(worker):
    verdict = worker.evaluate(IDLE, SMALL, fidelity="search")
    found = graph(verdict)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "candidate" not in found["ms"]
    assert "wrong when replayed" in found["why_not"]["candidate"]
