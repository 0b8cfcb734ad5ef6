"""The outcome is the input's values, in memory of its own.

task: copy
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <cstring>

void copy(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  memcpy(y.data_ptr(), x.data_ptr(), 4 * x.numel());
}
"""
kernels = load_inline("copy", cpp_sources=CPP, functions="copy", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.copy(x, y)
        return y
