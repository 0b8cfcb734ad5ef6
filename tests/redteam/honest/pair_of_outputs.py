"""Two outputs in a tree, made by one kernel.

task: pair
fidelity: screen
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <algorithm>

void pair(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView largest) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  float* top = static_cast<float*>(largest.data_ptr());
  const int64_t n = x.size(-1);
  for (int64_t row = 0; row < largest.numel(); ++row) {
    top[row] = *std::max_element(in + row * n, in + (row + 1) * n);
    for (int64_t i = row * n; i < (row + 1) * n; ++i) out[i] = in[i] * 2 + 1;
  }
}
"""
kernels = load_inline("pair", cpp_sources=CPP, functions="pair", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y, largest = torch.empty_like(x), x.new_empty(x.shape[0])
        kernels.pair(x, y, largest)
        return y, {"largest": largest}
