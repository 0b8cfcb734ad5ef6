"""Suites whose reference is a Triton kernel, on a GPU.

Invariant: such a kernel is a task with the inputs of its tests or of its runner, drawn on the GPU;
right and wrong outcomes are told apart although the kernel does not run in fp64.
"""

from pathlib import Path

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.tasks import find_task
from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.compare import judge
from evolve.worker.ipc.pytree import flatten
from tests.tasks.test_recorded_suites import DIVIDER, RUNNER, write

pytestmark = pytest.mark.gpu

KERNEL = """import torch
import triton
import triton.language as tl

TYPES = {torch.float32: 64}

@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n)
    tl.store(out + place, value * 3, mask=place < n)

def prepared(out):
    return out

def tripled(x, out):
    block = TYPES[x.dtype]
    kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)

def threefold(x):
    out = torch.empty_like(x)
    tripled(x, out)
    return out
"""
TESTS = """
import torch
result_gold = [threefold(torch.randn(n, 8, device="cuda")) for n in (3, 70)]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    write(tmp_path / "data/TritonBench_G_v1/threefold.py", f"{KERNEL}\n{DIVIDER}\n{TESTS}")
    folder = tmp_path / "tasks/triton2triton/vllm/tripled"
    write(folder / "config.yaml", "task_type: triton2triton\n")
    write(folder / "source/kernel.py", KERNEL)
    write(folder / "scripts/task_runner.py", RUNNER)
    return tmp_path


@pytest.mark.parametrize("spec", ["tritonbench_g:threefold", "agent_kernel_arena:vllm/tripled"])
def test_a_kernel_is_a_reference_with_the_inputs_of_its_own_calls(checkout: Path, spec: str):
    cases = load_task(find_task(spec, checkout=checkout, size="gpu"), torch.device("cuda", 0)).cases
    assert len(cases) == 2
    for case in cases:
        inputs = case.inputs(1)
        assert inputs[0].is_cuda
        assert not inputs[0].equal(case.inputs(2)[0])
        expected = case.expected(case.model(1), inputs)
        for factor, status in ((3, Status.CORRECT), (3.1, Status.WRONG_VALUE)):
            outputs, _ = flatten([inputs[0] * factor])
            assert judge(case, outputs, expected.spec, expected, inputs).status is status
