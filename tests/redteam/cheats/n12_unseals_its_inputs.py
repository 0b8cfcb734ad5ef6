"""Tries to write into the memory that the judge itself reads inputs from.

task: gate
verdict: wrong_value
"""

import contextlib
import mmap
import os

import torch
from torch import nn

from evolve.worker.runner import runner

call = runner.Runner._call


def attack_and_call(self, *arguments):
    fd, size = arguments[-1], next(a for a in arguments if type(a) is int and a >= mmap.PAGESIZE)
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
    with contextlib.suppress(OSError):
        os.pwrite(fd, bytes(size), 0)
    with contextlib.suppress(OSError, ValueError):
        mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE)[:] = bytes(size)
    with contextlib.suppress(OSError), open(f"/proc/self/fd/{fd}", "r+b", 0) as again:
        again.write(bytes(size))
    call(self, *arguments)


runner.Runner._call = attack_and_call


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
