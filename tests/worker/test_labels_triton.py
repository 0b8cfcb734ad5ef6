"""The probes and Triton: a stubbed launch writes nothing, a real one is no torch compute.

Skipped where Triton is not installed; runs in its interpreter, so no GPU is needed.
"""

import pytest
import torch

from evolve.worker.runner.probes import count_aten, stub_custom

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@pytest.fixture
def twice(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    @triton.jit
    def twice(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    return twice


def test_a_stubbed_launch_leaves_its_output_unwritten(twice):
    x, y = torch.randn(8), torch.zeros(8)
    with stub_custom() as skipped:
        twice[(1,)](x, y, 8, BLOCK=8)
    assert not y.any()
    assert skipped == ["twice"]


def test_a_launch_is_no_work_of_torch(twice):
    x, y = torch.randn(8), torch.zeros(8)
    with count_aten() as account:
        twice[(1,)](x, y, 8, BLOCK=8)
    assert torch.equal(y, 2 * x)
    assert account.totals() == {}
