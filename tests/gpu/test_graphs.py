"""Calls recorded as a CUDA graph, timed beside plain ones.

Invariants:
- a launch-bound kernel is timed both ways, and takes less as a graph;
- the task's rule says which ratio counts;
- who cannot be recorded keeps its verdict, and is held with its plain calls against graphs;
- work left out while recording is found, and has no such time; who leaves it out of some calls
  only is convicted where graphs decide;
- whose process ends over being recorded keeps its verdict.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import Status
from tests.gpu.programs import RIGHT, SMALL, triton_program

BY_GRAPH = replace(SMALL, name="relu2-graph", source=SMALL.source + "\nTIMING = 'graph'\n")
WAITING = triton_program(forward="torch.cuda.synchronize()")
CAPTURING = "torch.cuda.is_current_stream_capturing()"
IDLE = triton_program(forward=f"if {CAPTURING}: return y")
SKIPPING = triton_program(
    forward=f"self.n = getattr(self, 'n', 0) + {CAPTURING}\n        if self.n % 2: return y"
)
GONE = triton_program(forward=f"if {CAPTURING}: __import__('os')._exit(0)")


def graph(verdict):
    (row,) = verdict.samples.values()
    print("why not:", row["graph"].get("why_not"))
    return row["graph"]


def median(rows):
    values = sorted(value for row in rows for value in row)
    return values[len(values) // 2]


def test_a_launch_bound_kernel_is_timed_both_ways(worker):
    verdict = worker.evaluate(RIGHT, SMALL, fidelity="search")
    found = graph(verdict)
    plain = verdict.cases[0].times_ms
    print({side: median(rows) for side, rows in found["ms"].items()}, plain)
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
    print(verdict.ratios)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert set(found["ms"]) == {"eager"}
    assert "candidate" in found["why_not"]
    assert verdict.ratios["eager"].value < 1


def test_work_left_out_while_recording_is_found(worker):
    verdict = worker.evaluate(IDLE, SMALL, fidelity="search")
    found = graph(verdict)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "candidate" not in found["ms"]
    why = found["why_not"]["candidate"]
    assert "wrong when replayed" in why or "shorter than the clock" in why
    assert "wrong_when_recorded" in [label.name for label in verdict.labels]


def test_work_left_out_of_some_calls_is_a_wrong_outcome_where_graphs_decide(worker):
    verdict = worker.evaluate(SKIPPING, BY_GRAPH, fidelity="search")
    print(verdict.feedback)
    assert verdict.status is Status.WRONG_VALUE


def test_who_ends_over_being_recorded_keeps_its_verdict(worker):
    verdict = worker.evaluate(GONE, SMALL, fidelity="search")
    print(verdict.feedback)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "candidate" in graph(verdict)["why_not"]


def test_a_program_that_replays_its_own_graph_is_judged_by_what_it_launches(worker):
    for name in ("yaml", "jinja2"):
        pytest.importorskip(name, reason="the package of operators needs it")
    from operators.local.inductor.recording import MANY, recording

    launch = "kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)"
    plain = triton_program(forward="\n        ".join([launch] * MANY))
    (more,) = recording([plain[plain.index("    def forward") :]], ["output[0]"])
    verdicts = [
        worker.evaluate(source, SMALL, fidelity="search") for source in (plain, plain + more)
    ]
    print([verdict.ratios for verdict in verdicts])
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 2, verdicts[1].feedback
    assert all(verdict.custom for verdict in verdicts)
    plain_ratio, own_ratio = (verdict.ratios["eager"].value for verdict in verdicts)
    assert own_ratio > 2 * plain_ratio
