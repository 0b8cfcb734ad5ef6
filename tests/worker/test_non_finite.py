"""NaN and infinities: how a program treats them is said, and decides only if the task says so.

Invariants:
1. A program whose NaN or infinities lie elsewhere than the reference's is correct, with a label,
   which follows from its values and not from its messages.
2. `NAN = "equal"` in the task's file makes it wrong.
3. A reference whose own pattern is not stable, or that takes no floating input, asks for nothing.
"""

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.non_finite import expected_pattern, with_non_finite

TASK = """
import torch
{rule}

class Model(torch.nn.Module):
    def forward(self, x):
        return {outcome}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
PROGRAM = """
import os
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""
DROPPING = "return torch.where(x > 0, x, 0.0)"
KEEPING = "return x.clamp(min=0)"
CLIPPING = "return x.clamp(min=0, max=1e4)"
REFUSING = "assert x.isfinite().all(); return x.relu()"
LACKING = "assert x.isfinite().all(), 'output 0 lacks 8 of 8 NaN (drops_nan)'; return x.relu()"


def task(outcome="x.relu()", rule="", inputs="torch.randn(32, 64)") -> Task:
    source = TASK.format(outcome=outcome, rule=rule, inputs=inputs)
    return Task(name="relu", source=source, size="tiny")


def labels(verdict) -> dict[str, str]:
    return {one.name: one.evidence for one in verdict.labels}


def judged(worker, body: str, of: Task):
    return worker.evaluate(PROGRAM.format(body=body), of, "check")


def test_a_program_that_drops_nan_is_correct_and_named(worker):
    verdict = judged(worker, DROPPING, task())
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "output 0 lacks 8 of 8 NaN of the reference" in labels(verdict)["drops_nan"]


def test_a_program_with_other_infinities_is_named(worker):
    verdict = judged(worker, CLIPPING, task())
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "differs in 8 infinities" in labels(verdict)["other_non_finite"]
    assert "AssertionError" in labels(judged(worker, REFUSING, task()))["other_non_finite"]


def test_the_text_of_an_exception_chooses_no_label(worker):
    found = labels(judged(worker, LACKING, task()))
    assert "output 0 lacks 8 of 8 NaN" in found["other_non_finite"]
    assert "drops_nan" not in found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x.isfinite().all() or os.kill(os.getpid(), 11)\n        return x.relu()", "SIGSEGV"),
        ("x.isfinite().all() or time.sleep(60)\n        return x.relu()", "longer than"),
        ("x.isfinite().all() or os._exit(0)\n        return x.relu()", "ended"),
    ],
)
def test_a_program_that_such_values_end_is_correct_and_named(worker, body, said):
    verdict = judged(worker, body, task())
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert said in labels(verdict)["other_non_finite"]


def test_a_program_that_keeps_them_has_no_label(worker):
    found = labels(judged(worker, KEEPING, task()))
    assert not {"drops_nan", "other_non_finite"} & found.keys()


def test_a_task_may_ask_for_equal_nan(worker):
    asked = task(rule='NAN = "equal"')
    verdict = judged(worker, DROPPING, asked)
    assert verdict.status is Status.WRONG_VALUE
    assert "on inputs with NaN and infinities: output 0 lacks" in verdict.feedback
    assert judged(worker, KEEPING, asked).status is Status.CORRECT


@pytest.mark.parametrize(
    ("outcome", "inputs", "applies"),
    [
        ("x.softmax(-1)", "torch.randn(8, 64)", True),
        ("x.amax(-1)", "torch.randn(8, 64)", True),
        ("x.argmax(-1)", "torch.randn(8, 64)", False),  # no floating outcome
        ("x * 2", "torch.randint(9, (8, 64))", False),  # no floating input
        ("x * 2", "torch.randint(2, (8, 64)).float()", False),  # a mask
        ("(x * 1e30 * 1e30) if x.dtype == torch.float32 else x", "torch.randn(8, 64)", False),
    ],
)
def test_it_applies_where_the_references_own_pattern_is_stable(outcome, inputs, applies):
    (case,) = load_task(task(outcome, inputs=inputs)).cases
    changed = with_non_finite(case.inputs(3), 3)
    found = changed and expected_pattern(case, case.model(1), changed)
    assert bool(found) is applies


def test_each_tensor_gets_nan_and_both_infinities():
    (x, y) = with_non_finite([torch.randn(64, 64), torch.randn(2, 8).to(torch.bfloat16)], 1)
    assert [int(x.isnan().sum()), int(x.isposinf().sum()), int(x.isneginf().sum())] == [8, 8, 8]
    assert [int(y.isnan().sum()), int(y.isposinf().sum()), int(y.isneginf().sum())] == [1, 1, 1]
