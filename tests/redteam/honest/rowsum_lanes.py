"""Sixteen independent sums, added at the end.

task: rowsum
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1);
  for (int64_t row = 0; row < y.numel(); ++row) {
    float lanes[16] = {};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      for (int lane = 0; lane < 16; ++lane) lanes[lane] += in[row * n + i + lane];
    }
    float sum = 0;
    for (; i < n; ++i) sum += in[row * n + i];
    for (float lane : lanes) sum += lane;
    out[row] = sum;
  }
}
"""
kernels = load_inline("lanes", cpp_sources=CPP, functions="row_sum", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[:-1])
        kernels.row_sum(x, y)
        return y
