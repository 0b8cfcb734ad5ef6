"""It says that there are as many outputs as a word can count, and that they lie anywhere.

Places before and behind its memory, at its end, of the referee's, negative, and so large that what
is added to them starts again at zero.

task: gate
device: cuda
fidelity: screen
verdict: wrong_value wrong_tree aliased hack runtime_exception
"""

import itertools
import sys

import torch
import triton
import triton.language as tl
from torch import nn

signals = sys.modules[".".join(("evolve", "worker", "signals"))]
COUNTS = itertools.cycle([2**63 - 1, -1, -(2**63), 2**40, None])


@triton.jit
def gate_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.maximum(value, 0.0) * 2 + value, mask=at < n)


def launch(x, y):
    n = x.numel()
    gate_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)


tell_places = signals.Signals.tell_places


def tell_others(self, addresses):
    if not addresses:
        return
    count, own = next(COUNTS), addresses[0]
    false = [-1, -(2**63), 2**63 - 1, 8, self.address, own + (1 << 40), own - (1 << 40), 0]
    places = [false[at % len(false)] for at in range(len(addresses))]
    tell_places(self, places)
    if count is not None:
        self._words[signals._COUNT] = count


signals.Signals.tell_places = tell_others


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(x, y)
        return y
