"""Tries to write into the memory that the judge itself reads inputs from.

task: gate
verdict: wrong_value hack runtime_exception
"""

import contextlib
import mmap
import os

import torch
from torch import nn

from evolve.worker import runner

map_slab = runner.slab.map_slab


def map_and_attack(fd, size):
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
    with contextlib.suppress(OSError):
        os.pwrite(fd, bytes(size), 0)
    with contextlib.suppress(OSError, ValueError):
        mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE)[:] = bytes(size)
    with contextlib.suppress(OSError), open(f"/proc/self/fd/{fd}", "r+b", 0) as again:
        again.write(bytes(size))
    return map_slab(fd, size)


runner.slab.map_slab = map_and_attack


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
