"""Row 38: a fp32 product with operands rounded to bf16.

task: matmul
verdict: wrong_value
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <cstdint>
#include <cstring>

static float shortened(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  bits = (bits + 0x8000u) & 0xffff0000u;
  memcpy(&value, &bits, 4);
  return value;
}

void product(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const float* left = static_cast<const float*>(a.data_ptr());
  const float* right = static_cast<const float*>(b.data_ptr());
  float* out = static_cast<float*>(c.data_ptr());
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += shortened(left[i * k + l]) * shortened(right[l * n + j]);
      }
      out[i * n + j] = sum;
    }
  }
}
"""
kernels = load_inline("short", cpp_sources=CPP, functions="product", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])
        kernels.product(a, b, c)
        return c
