"""Sums of halves, recursively.

task: rowsum
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
static float halves(const float* x, int64_t n) {
  if (n <= 8) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  return halves(x, n / 2) + halves(x + n / 2, n - n / 2);
}

void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1);
  for (int64_t row = 0; row < y.numel(); ++row) out[row] = halves(in + row * n, n);
}
"""
kernels = load_inline("pairwise", cpp_sources=CPP, functions="row_sum", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[:-1])
        kernels.row_sum(x, y)
        return y
