"""A persistent team that takes tiles from a counter, as persistent GPU kernels do.

task: gate
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <algorithm>
#include <atomic>

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel(), tile = 1000;
  std::atomic<int64_t> next{0};
#pragma omp parallel
  for (int64_t at = next.fetch_add(tile); at < n; at = next.fetch_add(tile)) {
    for (int64_t i = at; i < std::min(n, at + tile); ++i) out[i] = in[i] > 0 ? 3 * in[i] : in[i];
  }
}
"""
kernels = load_inline(
    "dynamic",
    cpp_sources=CPP,
    functions="gate",
    extra_cflags=["-O2", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
