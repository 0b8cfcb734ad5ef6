"""Tasks and candidates for the GPU: y = 2 relu(x) + x, right, wrong and violent."""

from evolve.core.task import Task

N = 4096

TASK = Task(
    name="relu2",
    size="gpu",
    source=f"""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + x

def get_inputs():
    return [torch.randn({N}, {N})]

def get_init_inputs():
    return []
""",
)

SMALL = Task(name="relu2-small", size="gpu", source=TASK.source.replace(f"{N}, {N}", "64, 256"))


def triton_program(
    body: str = "tl.maximum(value, 0.0) * 2 + value", *, mask: str = "at < n", before: str = "",
    forward: str = "", grid: str = "(triton.cdiv(x.numel(), BLOCK),)",
) -> str:  # fmt: skip
    """An elementwise program; `forward` runs before the launch."""
    return f"""
import time
import torch
import triton
import triton.language as tl

BLOCK = 2048

{before}

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask={mask}, other=0.0)
    tl.store(y + at, {body}, mask={mask})

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {forward or "pass"}
        kernel[{grid}](x, y, x.numel(), BLOCK=BLOCK)
        return y
"""


RIGHT = triton_program()


def torch_program(body: str, before: str = "") -> str:
    """A candidate whose forward is `body`; `right` computes the right outcome with torch."""
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return f"""
import os, signal, sys, threading, time
import torch
from torch import nn

def right(x):
    return torch.relu(x) * 2 + x

{before}

class ModelNew(nn.Module):
    def forward(self, x):
{lines}
"""
