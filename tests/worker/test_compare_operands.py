"""Operands of products in shorter types: what a task allows passes, and nothing shorter.

Invariants: a task allows just the arithmetic that it names; operands as tensor cores read them pass
in every input family if TF32 is allowed, also if inputs have few values.
"""

import pytest
import torch
from torch.nn import functional

from evolve.core.evaluation import Status
from tests.worker import judging
from tests.worker.judging import cut_to_tf32, judged, prepared, rounded_to_tf32, verdicts
from tests.worker.test_compare_honest import task

RULES = {
    "ieee": {"fp32"},
    "tf32": {"fp32", "tf32", "cut tf32", "fp16"},
    "half": {"fp32", "tf32", "cut tf32", "fp16", "bf16"},
}


@pytest.mark.parametrize("accumulation", RULES)
def test_a_task_allows_just_the_arithmetic_that_it_names(accumulation):
    case = task(
        "x @ y",
        "[torch.randn(64, 1024), torch.randn(1024, 64)]",
        arguments="x, y",
        accumulation=accumulation,
    )
    roundings = {
        "fp32": lambda x: x,
        "tf32": rounded_to_tf32,
        "cut tf32": cut_to_tf32,
        "fp16": lambda x: x.half().float(),
        "bf16": lambda x: x.bfloat16().float(),
        "fp8": lambda x: x.to(torch.float8_e4m3fn).float(),
    }
    passed = {
        name
        for name, rounding in roundings.items()
        if judged(case, lambda model, x, y, r=rounding: r(x) @ r(y)).status is Status.CORRECT
    }
    assert passed == RULES[accumulation]


def test_of_inputs_with_few_values_the_same_operands_are_cut_alike_and_pass(monkeypatch):
    case = task(
        "x @ y",
        "[torch.randn(48, 2048), torch.randn(2048, 48)]",
        arguments="x, y",
        accumulation="tf32",
    )
    for seed in range(40):
        monkeypatch.setattr(judging, "SEED", seed)
        prepared.cache_clear()
        for cutting in (cut_to_tf32, rounded_to_tf32):
            verdict = judged(case, lambda model, x, y, f=cutting: f(x) @ f(y), "ties")
            assert verdict.status is Status.CORRECT, (seed, verdict.feedback)


@pytest.mark.parametrize("terms", [64, 1024, 2048])
def test_operands_as_tensor_cores_read_them_pass_in_every_family_where_tf32_is_allowed(terms):
    case = task(
        "x @ y",
        f"[torch.randn(256, {terms}), torch.randn({terms}, 256)]",
        arguments="x, y",
        accumulation="tf32",
    )
    found = verdicts(case, lambda model, x, y: cut_to_tf32(x) @ cut_to_tf32(y))
    assert set(found.values()) == {Status.CORRECT}, found


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_tasks_accept_fp32_inside_and_refuse_fp8(precision):
    case = task(
        "F.gelu(x @ y)",
        "[torch.randn(64, 256), torch.randn(256, 64) / 16]",
        arguments="x, y",
        precision=precision,
    )

    def inside_fp32(model, x, y):
        return functional.gelu(x.float() @ y.float()).to(x.dtype)

    def from_fp8(model, x, y):
        short = (value.to(torch.float8_e4m3fn).float() for value in (x, y))
        first, second = short
        return functional.gelu(first @ second).to(x.dtype)

    assert set(verdicts(case, inside_fp32).values()) == {Status.CORRECT}
    assert judged(case, from_fp8).status is Status.WRONG_VALUE
