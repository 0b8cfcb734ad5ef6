"""A workspace tensor that the module keeps; outputs are new in every call.

task: softmax
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <algorithm>
#include <cmath>

void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView sums, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* total = static_cast<float*>(sums.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1), rows = x.numel() / n;
  for (int64_t row = 0; row < rows; ++row) {
    const float largest = *std::max_element(in + row * n, in + row * n + n);
    total[row] = 0;
    for (int64_t i = 0; i < n; ++i) {
      total[row] += out[row * n + i] = std::exp(in[row * n + i] - largest);
    }
  }
  for (int64_t i = 0; i < rows * n; ++i) out[i] /= total[i / n];
}
"""
kernels = load_inline("kept", cpp_sources=CPP, functions="softmax", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("workspace", torch.empty(1024), persistent=False)

    def forward(self, x):
        y = torch.empty_like(x)
        kernels.softmax(x, self.workspace, y)
        return y
