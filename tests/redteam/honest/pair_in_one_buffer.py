"""Two outputs that lie in one buffer, one behind the other.

task: pair
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <algorithm>

void pair(tvm::ffi::TensorView x, tvm::ffi::TensorView both) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(both.data_ptr());
  const int64_t rows = x.size(0), n = x.size(1);
  for (int64_t i = 0; i < rows * n; ++i) out[i] = in[i] * 2 + 1;
  for (int64_t row = 0; row < rows; ++row) {
    out[rows * n + row] = *std::max_element(in + row * n, in + (row + 1) * n);
  }
}
"""
kernels = load_inline("buffer", cpp_sources=CPP, functions="pair", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        both = x.new_empty(x.numel() + x.shape[0])
        kernels.pair(x, both)
        return both[: x.numel()].view(x.shape), {"largest": both[x.numel() :]}
