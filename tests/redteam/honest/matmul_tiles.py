"""Tiles with a transposed copy of the right operand and double accumulators.

task: matmul
fidelity: screen
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <algorithm>

constexpr int64_t TILE = 16;

void product(tvm::ffi::TensorView a, tvm::ffi::TensorView bt, tvm::ffi::TensorView c) {
  const float* left = static_cast<const float*>(a.data_ptr());
  const float* right = static_cast<const float*>(bt.data_ptr());
  float* out = static_cast<float*>(c.data_ptr());
  const int64_t m = a.size(0), k = a.size(1), n = bt.size(0);
  for (int64_t i0 = 0; i0 < m; i0 += TILE) {
    for (int64_t j0 = 0; j0 < n; j0 += TILE) {
      for (int64_t i = i0; i < std::min(m, i0 + TILE); ++i) {
        for (int64_t j = j0; j < std::min(n, j0 + TILE); ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) sum += left[i * k + l] * right[j * k + l];
          out[i * n + j] = static_cast<float>(sum);
        }
      }
    }
  }
}
"""
kernels = load_inline("tiles", cpp_sources=CPP, functions="product", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])
        kernels.product(a, b.t().contiguous(), c)
        return c
