"""Triton without a GPU: a limit of its interpreter is not a fault of the program.

Invariants: a kernel with `@triton.autotune` is interpreted by its first configuration; where the
interpreter is at its end the verdict is `infra` with the label `not_interpreted`, once; a wrong
kernel stays wrong.
"""

import pytest

from evolve.core.evaluation import Status
from evolve.core.task import Task
from tests.languages.programs import honest
from tests.worker.judging import task_source

TASK = Task(name="t", source=task_source("torch.exp(x) * 2", "[torch.randn(6, 100)]"))
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice

@triton.autotune([triton.Config({{"B": 128}}, num_warps=4), triton.Config({{"B": 64}})], key=["n"])
@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, {value}, mask=at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        {first}
        y = torch.empty_like(x)
        kernel[lambda about: (triton.cdiv(x.numel(), about["B"]),)](x, y, x.numel())
        return y
"""


def judged(worker, value="tl.exp(v) * 2", first="pass"):
    return worker.evaluate(KERNEL.format(value=value, first=first), TASK, "check")


def test_an_autotuned_kernel_is_interpreted_by_its_first_configuration(worker):
    verdict = judged(worker)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom


def test_a_wrong_autotuned_kernel_is_wrong(worker):
    assert judged(worker, "tl.exp(v)").status is Status.WRONG_VALUE


@pytest.mark.parametrize(
    ("value", "first", "words"),
    [
        ("libdevice.exp(v) * 2", "pass", "libdevice"),
        ("tl.exp(v) * 2", "assert x.is_cuda, 'expects CUDA tensors'", "a tensor on a GPU"),
        ("tl.exp(v) * 2", "torch.cuda.synchronize()", "for a GPU"),
    ],
)
def test_what_needs_a_gpu_is_not_held_against_the_program(worker, value, first, words):
    verdict = judged(worker, value, first)
    assert verdict.status is Status.INFRA, verdict.feedback
    (label,) = (one for one in verdict.labels if one.name == "not_interpreted")
    assert words in label.evidence
    assert verdict.feedback.startswith("not judged: ")


def test_a_programs_own_mistake_is_held_against_it(worker):
    verdict = judged(worker, "tl.exp(v) * unknown")
    assert verdict.status in (Status.RUNTIME_EXCEPTION, Status.COMPILE_ERROR), verdict.feedback


@pytest.mark.parametrize("name", ["gpu_gluon_gate", "gpu_nvrtc_gate", "gpu_cuda_inline"])
def test_a_language_without_an_interpreter_is_refused_with_the_remedy(worker, name):
    verdict = worker.evaluate(honest(name), TASK, "check")
    assert verdict.status is Status.INVALID_INTERFACE
    assert "runs on device=cuda; for device=cpu write C++" in verdict.feedback
