"""Records that cross processes or are stored as JSON.

Invariants:
1. What a record writes is JSON, and what is read back is equal, whatever its fields hold.
2. No record names a file outside of its task's folder: judges and exports write these files.
"""

import dataclasses
import json

import pytest

from evolve.core.compiled import Argument, ArgumentKind, Compiled, CompiledCase
from evolve.core.evaluation import (
    DEVICE_OOM,
    CaseResult,
    CaseSamples,
    Evaluation,
    Fidelity,
    GraphSamples,
    Label,
    Stage,
    Status,
)
from evolve.core.measurement import Interval, Ratio
from evolve.core.model import CallStatus, ModelReply, TokenTrace, Usage
from evolve.core.recalled import Kind, Recalled
from evolve.core.reference import CaseCost, OperationCost, ReferenceCost
from evolve.core.task import Case, Task

SPEEDUP = Ratio(2.0, 1.5, 2.5)
SAMPLES = CaseSamples(
    calls_per_block=10,
    overhead_ms=[0.01, 0.02],
    ms={"candidate": [[1.0, 1.1]], "eager": [[2.0, 2.2]]},
    graph=GraphSamples(
        ms={"candidate": [[0.9]]}, why_not={"eager": "it syncs"}, ratios={"eager": SPEEDUP}
    ),
    self_reported={"candidate": [0.5]},
    separate=(CaseSamples(calls_per_block=5, overhead_ms=[0.03], ms={"compile": [[1.5]]}),),
)
COMPILED = Compiled(
    variant="default",
    torch="2.13.0",
    cases=(
        CompiledCase(
            name="only",
            timed=False,
            code="def call(args): ...",
            arguments=(
                Argument("arg0_1", ArgumentKind.STATE, "scale", (4, 2), (2, 1), "torch.float32"),
                Argument("arg1_1", ArgumentKind.INPUT, "pair[0]"),
            ),
            mutated=("arg0_1",),
            outcome="output[0]",
        ),
    ),
    device={"sms": "132"},
)
RECORDS = {
    "evaluation": Evaluation(
        status=Status.CORRECT,
        stage=Stage.TIMING,
        fidelity=Fidelity.SEARCH,
        task_revision="revision",
        device_class="class",
        evaluator_version="version",
        ratios={"eager": SPEEDUP},
        cases=(
            CaseResult(
                name="wide",
                weight=2.0,
                timed=True,
                passed=True,
                times_ms={"candidate": Interval(1.0, 0.9, 1.2)},
                ratios={"eager": SPEEDUP},
                speed_of_light=0.5,
                bound="memory",
            ),
            CaseResult(name="odd", weight=0.0, timed=False, passed=True),
        ),
        custom=True,
        suite=False,
        labels=(Label(DEVICE_OOM, "3 of 4 GiB"),),
        feedback="well done",
        descriptors={"registers": 32.0, "language": "triton"},
        environment={"torch": "2.13.0"},
        samples={"wide": SAMPLES.to_json()},
        durations_s={"timing": 1.5},
        device_time_s=0.5,
    ),
    "samples of a case": SAMPLES,
    "reply": ModelReply(
        status=CallStatus.TRUNCATED,
        text="text",
        reasoning="reasoning",
        finish_reason="length",
        usage=Usage(prompt=100, completion=20, cached=50, reasoning=5),
        cost_usd=0.25,
        latency_s=1.5,
        attempts=2,
        model="model",
        error="cut",
        trace=TokenTrace(prompt_ids=(1, 2), ids=(3,), logprobs=(-0.5,)),
    ),
    "compiled": COMPILED,
    "task": Task(
        name="task",
        source="class Model: ...",
        size="large",
        precision="fp16",
        accumulation="tf32",
        cases=(Case(name="wide", constants={"N": 4096}, weight=2.0, timed=False),),
        files={"beside.py": "cGFzcwo="},
        seeds=("class ModelNew: ...",),
        compiled=(COMPILED,),
        category="norm",
    ),
    "recalled": Recalled(
        kind=Kind.SKILL, about="2 runs", words="no", language="triton", runs={"first": "a1"}
    ),
    "cost of a reference": ReferenceCost(
        device={"sms": "132"},
        cases=(
            CaseCost(
                name="wide",
                time_ms=1.0,
                moved_bytes=4096,
                flops=8,
                bytes_per_s=1e12,
                flops_per_s=1e13,
                bound="memory",
                operations=(
                    OperationCost(
                        name="mm",
                        shapes=((4, 2), (2, 4)),
                        calls=2,
                        time_ms=0.5,
                        moved_bytes=64,
                        flops=4,
                    ),
                ),
                others_ms=0.25,
            ),
        ),
        flops_per_s={"ieee": 1e13},
        longest_sum=1024,
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_read_back_as_it_was(name):
    record = RECORDS[name]
    sent = json.loads(json.dumps(record.to_json()))
    assert type(record).from_json(sent) == record


@pytest.mark.parametrize("name", RECORDS)
def test_the_records_of_this_file_leave_no_field_at_its_default(name):
    for field in dataclasses.fields(RECORDS[name]):
        value = getattr(RECORDS[name], field.name)
        assert value != field.default
        assert field.default_factory is dataclasses.MISSING or value != field.default_factory()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "..", ""])
def test_files_of_a_task_lie_beside_it(name: str):
    data = Task(name="t", source="").to_json() | {"files": {name: ""}}
    with pytest.raises(ValueError, match="not a path beside the task"):
        Task.from_json(data)
