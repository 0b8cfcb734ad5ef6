"""One pass for maximum and sum together, rescaled whenever the maximum grows.

task: softmax
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <cmath>

void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1), rows = x.numel() / n;
  for (int64_t row = 0; row < rows; ++row, in += n, out += n) {
    float largest = in[0], sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (in[i] > largest) {
        sum *= std::exp(largest - in[i]);
        largest = in[i];
      }
      sum += std::exp(in[i] - largest);
    }
    const float scale = 1 / sum;
    for (int64_t i = 0; i < n; ++i) out[i] = std::exp(in[i] - largest) * scale;
  }
}
"""
kernels = load_inline("online", cpp_sources=CPP, functions="softmax", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.softmax(x, y)
        return y
