"""compute-sanitizer at verification, where the host has it.

Invariants:
- a kernel that reads out of bounds is refused although its outcome is right;
- an honest one is labelled clean, also one with weights in another type than the constructor's;
- a second verification has what the tools found at the first.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import Status
from evolve.worker.base.host_facts import find_tool
from evolve.worker.evidence.sanitizer import NAME
from tests.gpu.programs import RIGHT, SMALL, triton_program

needs_tool = pytest.mark.skipif(find_tool(NAME) is None, reason="no compute-sanitizer on this host")
HALF = replace(
    SMALL,
    name="linear-bf16",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x)

def get_inputs():
    return [torch.randn(128, 64)]

def get_init_inputs():
    return []

ACCUMULATION = "half"
""",
    precision="bf16",
)
PACKED = """
import torch
import triton
import triton.language as tl

@triton.jit
def linear(x, w, b, y, K: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, N)
    k = tl.arange(0, K)
    left = tl.load(x + row * K + k).to(tl.float32)
    right = tl.load(w + k[:, None] * N + column[None, :]).to(tl.float32)
    total = tl.sum(left[:, None] * right, axis=0) + tl.load(b + column).to(tl.float32)
    tl.store(y + row * N + column, total)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.packed = self.layer.weight.detach().t().contiguous()

    def forward(self, x):
        y = torch.empty(x.shape[0], 64, device=x.device, dtype=x.dtype)
        assert self.layer.bias.dtype == x.dtype
        linear[(x.shape[0],)](x, self.packed, self.layer.bias, y, K=64, N=64)
        return y
"""
# Reads on behind the input, and stores nothing of it.
READS_ON = triton_program(before="", grid="(triton.cdiv(x.numel(), BLOCK) + 4,)").replace(
    "mask=at < n, other", "mask=at < 2 * n, other"
)


@needs_tool
@pytest.mark.slow
def test_reads_out_of_bounds_are_refused(worker):
    verdict = worker.evaluate(READS_ON, SMALL, fidelity="verify")
    print(verdict.feedback, verdict.durations_s, verdict.labels)
    assert verdict.status is Status.ILLEGAL_ACCESS, verdict.labels
    assert "compute-sanitizer" in verdict.feedback


@needs_tool
@pytest.mark.slow
def test_an_honest_kernel_is_labelled_clean(worker):
    verdict = worker.evaluate(RIGHT + "\n# verified\n", SMALL, fidelity="verify")
    print(verdict.durations_s, verdict.labels)
    assert verdict.status is Status.CORRECT
    found = {label.name: label.evidence for label in verdict.labels}
    assert found["memcheck"] == "no error in one call"


@needs_tool
@pytest.mark.slow
def test_tools_run_once_for_a_program(worker):
    program = RIGHT + "\n# verified twice\n"
    first, again = (worker.evaluate(program, SMALL, fidelity="verify") for _ in range(2))
    print(first.durations_s, again.durations_s)
    found = [
        [label for label in verdict.labels if label.name in ("memcheck", "racecheck", "counters")]
        for verdict in (first, again)
    ]
    assert found[0]
    assert found[0] == found[1]
    assert again.durations_s["tools"] < 0.1


@needs_tool
@pytest.mark.slow
def test_weights_have_their_type_under_the_tool_as_they_have_without(worker):
    verdict = worker.evaluate(PACKED, HALF, fidelity="verify")
    print(verdict.feedback, verdict.durations_s, verdict.labels)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert "memcheck" in [label.name for label in verdict.labels]
