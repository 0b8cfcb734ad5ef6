"""Mean and variance together in one pass (Welford, 1962).

task: layernorm
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <cmath>

void layernorm(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b,
               tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* weight = static_cast<const float*>(w.data_ptr());
  const float* bias = static_cast<const float*>(b.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1), rows = x.numel() / n;
  for (int64_t row = 0; row < rows; ++row, in += n, out += n) {
    float mean = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float delta = in[i] - mean;
      mean += delta / (i + 1);
      squares += delta * (in[i] - mean);
    }
    const float scale = 1 / std::sqrt(squares / n + 1e-5f);
    for (int64_t i = 0; i < n; ++i) out[i] = (in[i] - mean) * scale * weight[i] + bias[i];
  }
}
"""
kernels = load_inline("welford", cpp_sources=CPP, functions="layernorm", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        y = torch.empty_like(x)
        kernels.layernorm(x, self.norm.weight.detach(), self.norm.bias.detach(), y)
        return y
