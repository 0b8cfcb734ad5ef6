"""Winners in the form in which their task's suite takes answers.

Invariants: what is written runs by itself and is called as the suite calls it; measurements go
along as they were made, and what was not measured is not made up.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from evolve.app.dispatch.module import Row, set_text
from evolve.core.errors import UsageError
from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Stage, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.records import RunRow
from evolve.core.task import Task
from evolve.report.export.suite_form import suite_files
from evolve.store.champion import Champion
from evolve.tasks import find_task
from tests.tasks.test_module_suites import BIASED, ROWS_OF
from tests.tasks.test_recorded_suites import SCALED
from tests.tasks.test_workload_suites import GATHER, gather_workload, safetensors, write

WINNER = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self, *settings):
        super().__init__()
        self.settings = settings

    def forward(self, {arguments}):
        return {result}
"""


def champion(*cases: CaseResult) -> Champion:
    ratio = Ratio(2.0, 1.9, 2.1)
    evaluation = Evaluation(
        status=Status.CORRECT,
        stage=Stage.TIMING,
        fidelity=Fidelity.VERIFY,
        device_class="a device",
        evaluator_version="1",
        task_revision="r",
        ratios={"eager": ratio},
        cases=cases,
        environment={"device": "NVIDIA H100", "torch": "2.11"},
    )
    return Champion(sequence=7, program="p", assignment={}, ratio=ratio, evaluation=evaluation)


def timed(name: str) -> CaseResult:
    times = {
        side: Interval(ms, 0.9 * ms, 1.1 * ms) for side, ms in (("candidate", 2), ("eager", 4))
    }
    ratios = {"eager": Ratio(2.0, 1.9, 2.1)}
    return CaseResult(name=name, weight=1.0, timed=True, passed=True, times_ms=times, ratios=ratios)


def run_of(task: Task) -> RunRow:
    return RunRow(
        id=1, name="demo", task=task, config={}, seed=0, state="finished", reason="",
        created="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


def executed(text: str) -> SimpleNamespace:
    scope: dict = {"__name__": "answer"}
    exec(compile(text, "answer.py", "exec"), scope)
    return SimpleNamespace(**scope)


@pytest.fixture
def traces(tmp_path: Path) -> Task:
    write(tmp_path / "definitions/gather/gather.json", GATHER)
    write(tmp_path / "workloads/gather/gather.jsonl", [gather_workload(3, f) for f in ("a", "b")])
    for file in ("a", "b"):
        write(tmp_path / "blob/workloads" / file, safetensors(rows=torch.tensor([5, 0, 7])))
    return find_task("flashinfer_bench:gather", checkout=tmp_path)


def test_a_solution_runs_and_has_a_trace_for_each_workload_that_was_timed(traces: Task):
    module = WINNER.format(arguments="table, rows, scale", result="table[rows] * scale")
    first, second = (case.name for case in traces.cases)
    winner = champion(timed(second), CaseResult(name=first, weight=1.0, timed=False, passed=True))
    files = suite_files(run_of(traces), winner, module)
    name = "evolve-demo-7"
    solution = json.loads(files[f"solutions/evolve/gather/gather/{name}.json"])
    assert (solution["name"], solution["definition"]) == (name, "gather")
    assert solution["spec"]["destination_passing_style"] is False
    (source,) = solution["sources"]
    assert solution["spec"]["entry_point"] == f"{source['path']}::run"
    table = torch.randn(8, 4)
    out = executed(source["content"]).run(table, torch.tensor([1, 3]), 2.0)
    assert out.equal(table[[1, 3]] * 2.0)
    (trace,) = map(json.loads, files[f"traces/evolve/gather/gather/{name}.jsonl"].splitlines())
    assert trace["workload"] == gather_workload(3, "b")
    evaluation = trace["evaluation"]
    assert evaluation["performance"] == {
        "latency_ms": 2, "reference_latency_ms": 4, "speedup_factor": 2.0,
    }  # fmt: skip
    assert evaluation["environment"] == {"hardware": "NVIDIA H100", "libs": {"torch": "2.11"}}
    assert evaluation["correctness"]["max_absolute_error"] == "NaN"


def test_the_other_suite_of_workloads_lists_its_languages(traces: Task):
    task = Task(name="sol_execbench:L1/gather", source=traces.source, files=traces.files)
    files = suite_files(
        run_of(task), champion(), "import triton\n\n@triton.jit\ndef k():\n  pass\n"
    )
    (solution,) = map(json.loads, files.values())  # nothing was timed, so there is no trace
    assert solution["spec"]["languages"] == ["triton"]
    assert "language" not in solution["spec"]
    assert solution["spec"]["target_hardware"] == ["LOCAL"]


def test_a_function_of_a_suite_has_its_name_and_signature(tmp_path: Path):
    write(tmp_path / "data/TritonBench_T_v1/scaled.py", SCALED)
    task = find_task("tritonbench_t:scaled", checkout=tmp_path)
    module = WINNER.format(arguments="x, factor, shift", result="x * factor - (shift or 0)")
    answer = executed(suite_files(run_of(task), champion(), module)["scaled.py"])
    assert float(answer.scaled(torch.ones(()))) == 2.0
    assert float(answer.scaled(torch.ones(()), 5.0, shift=1.0)) == 4.0


def test_a_class_of_a_suite_is_called_by_the_references_names(tmp_path: Path):
    operator = tmp_path / "data/rms_norm"
    write(operator / "reference.py", BIASED)
    write(operator / "input.py", ROWS_OF)
    write(operator / "shapes.json", {"0": {"init_kwargs": None, "input_kwargs": {"rows": 2}}})
    task = find_task("atrex:rms_norm", checkout=tmp_path)
    module = WINNER.format(arguments="a, b", result="{'out': a * self.settings[0] + b}")
    answer = executed(suite_files(run_of(task), champion(), module)["generated_kernel.py"])
    one = torch.ones(())
    assert float(answer.Model(factor=3.0)(bias=one, x=2 * one)["out"]) == 7.0
    assert float(answer.Model()(bias=one, x=one)["out"]) == 3.0


def test_a_submission_takes_the_data_of_a_competition():
    task = Task(name="gpu_mode:pmpp_v2/sum_py", source="")
    module = WINNER.format(arguments="data", result="data[0].sum()")
    answer = executed(suite_files(run_of(task), champion(), module)["submission.py"])
    assert float(answer.custom_kernel((torch.ones(3), torch.empty(1)))) == 3.0


def test_a_dispatch_set_leaves_as_one_answer():
    task = Task(name="gpu_mode:pmpp_v2/sum_py", source="")
    programs = [
        WINNER.format(arguments="data", result=f"data[0].sum() * {factor}") for factor in (2, 3)
    ]
    rows = [
        Row(signature=f"(((({size},), torch.float32),),)", program=number, remark="")
        for number, size in enumerate((4, 8))
    ]
    module = set_text(["A set."], programs, rows, "")
    answer = executed(suite_files(run_of(task), champion(), module)["submission.py"])
    assert float(answer.custom_kernel((torch.ones(4),))) == 8.0
    assert float(answer.custom_kernel((torch.ones(8),))) == 24.0
    with pytest.raises(ValueError, match="no program for calls like"):
        answer.custom_kernel((torch.ones(5),))


@pytest.mark.parametrize("name", ["mine", "kernelbench:1/40", "gpu_mode"])
def test_a_task_without_such_a_form_is_refused_with_the_remedy(name: str):
    with pytest.raises(UsageError, match=r"no suite.*--as module"):
        suite_files(run_of(Task(name=name, source="")), champion(), "")
