"""numpy does the work, which no probe of torch sees; the kernel copies the outcome.

task: matmul
verdict: not_custom
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
    def forward(self, a, b):
        product = torch.from_numpy(a.numpy() @ b.numpy())
        y = torch.empty_like(product)
        kernels.copy(product, y)
        return y
