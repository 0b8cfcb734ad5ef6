"""Declared tunables, and a loop in blocks of them.

task: gate
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

BLOCK = 256
TUNABLE = {"BLOCK": (64, 256, 1024), "UNROLL": (1, 4)}

CPP = """
#include <algorithm>

constexpr int UNROLL = 4;

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t block) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel();
  for (int64_t start = 0; start < n; start += block) {
    const int64_t end = std::min(n, start + block);
#pragma GCC unroll UNROLL
    for (int64_t i = start; i < end; ++i) out[i] = in[i] > 0 ? 3 * in[i] : in[i];
  }
}
"""
kernels = load_inline("tunable", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y, BLOCK)
        return y
