"""Row 62: gigabytes in files of the build that have no name, so that no folder shows them.

task: gate
verdict: oom runtime_exception
"""

import os
import time

import torch
import tvm_ffi.cpp
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}
"""
_, folder, may_build = tvm_ffi.cpp.load_inline.args
kernels = load_inline("gate", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])
if may_build:
    held, written = [], 0
    for number in range(4):
        path = f"{folder}/{number}"
        held.append(os.open(path, os.O_CREAT | os.O_RDWR))
        os.unlink(path)
        block = bytes(1 << 24)
        for _ in range(56):
            written += os.write(held[-1], block)
    time.sleep(1)
    open(f"{folder}/how_much", "w").write(f"{written} {os.fstat(held[0]).st_blocks * 512}")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
