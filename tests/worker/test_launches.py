"""What is noted of the launches of a call, beside the profiler.

Invariants: every launch is noted once, in order, with the bytes of its tensors, each memory once;
nothing is noted outside, and launches are what they were.
"""

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from evolve.worker.runner.launches import noted, operand_bytes


@triton.jit
def pack(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


@pytest.fixture
def launched(monkeypatch):
    """What reaches Triton, which has no device to launch on here."""
    calls = []
    metadata = SimpleNamespace(name="pack", num_warps=8, num_stages=3)

    def run(function, *arguments, **options):
        calls.append((arguments, options))
        return SimpleNamespace(metadata=metadata, n_spills=2)

    monkeypatch.setattr(JITFunction, "run", run)
    return calls


def test_each_launch_is_noted_with_its_operands_and_how_it_was_compiled(launched):
    one, other = torch.zeros(100), torch.zeros(50, dtype=torch.float16)
    with noted() as seen:
        pack[(4,)](one, other, 100, BLOCK=32)
        pack[(4,)](one, target=one, n=100, BLOCK=32)
        pack.warmup(one, other, 100, BLOCK=32, grid=(4,))
    pack[(4,)](one, other, 100, BLOCK=32)
    said = {"name": "pack", "warps": 8, "stages": 3, "spills": 2}
    assert seen == [said | {"operand_bytes": 500}, said | {"operand_bytes": 400}]
    assert len(launched) == 4


def test_launches_are_what_they_were_although_the_call_fails(launched):
    before = JITFunction.run
    with pytest.raises(RuntimeError), noted():
        raise RuntimeError("of the candidate")
    assert JITFunction.run is before


@pytest.mark.parametrize(
    ("operands", "size"),
    [
        ([], 0),
        ([3, "text", None], 0),
        ([torch.zeros(8).expand(1000, 8)], 32),  # no more than there is memory
        ([torch.zeros(10, 10)[:5]], 200),
        ([SimpleNamespace(base=torch.zeros(4, 4))], 64),  # a tensor descriptor
    ],
)
def test_operands_are_counted_as_far_as_they_are_memory(operands, size):
    assert operand_bytes(operands) == size
