"""Further times of a verdict, as the terminal shows them.

Invariants:
- a case whose calls were recorded has a line with its ratio; who could not be recorded, the reason;
- times by KernelBench's method are shown as what they are, and their lack is said.
"""

from evolve.cli.console.timing_table import graph_lines, kernelbench_lines
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status

TOLD = {"cold_ms": 0.5, "warm_ms": 0.25, "end_to_end_ms": 0.75, "kernelbench_ms": 0.5125}


def verdict(**row):
    return Evaluation(
        status=Status.CORRECT,
        stage=Stage.TIMING,
        fidelity=Fidelity.SEARCH,
        task_revision="",
        device_class="cuda: H200",
        evaluator_version="",
        samples={"wide": {"calls_per_block": 8, "ms": {}, **row}},
    )


def test_a_recorded_case_has_its_ratio_and_times():
    graph = {
        "ms": {"candidate": [[0.002, 0.004], [0.003]], "eager": [[0.008]]},
        "ratios": {"eager": [2.5, 2.4, 2.6]},
    }
    (line,) = graph_lines(verdict(graph=graph))
    assert "case wide: 2.50" in line
    assert "0.003 ms against 0.008 ms" in line


def test_who_cannot_be_recorded_is_said_with_the_reason():
    graph = {"ms": {"eager": [[0.008]]}, "ratios": {}, "why_not": {"candidate": "it waits"}}
    (line,) = graph_lines(verdict(graph=graph))
    assert line.endswith("candidate cannot be recorded: it waits")


def test_plain_verdicts_have_no_line_of_graphs():
    assert not list(graph_lines(verdict()))


def test_kernelbench_times_are_shown_as_what_the_process_says():
    (line,) = kernelbench_lines(verdict(self_reported={"candidate": TOLD, "eager": {}}))
    assert "candidate 0.5125 ms (told by the process itself" in line
    assert "eager" not in line


def test_the_lack_of_kernelbench_times_is_said():
    (line,) = kernelbench_lines(verdict())
    assert "not on a GPU" in line
