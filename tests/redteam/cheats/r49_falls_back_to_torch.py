"""Row 49: a kernel that always fails, with torch behind it.

task: gate
verdict: not_custom
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  TVM_FFI_THROW(RuntimeError) << "not today";
}
"""
kernels = load_inline("broken", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            y = torch.empty_like(x)
            kernels.gate(x, y)
        except RuntimeError:
            y = torch.relu(x) * 2 + x
        return y
