"""Row 37: vector loads without a mask take elements of the next row into the sum.

task: rowsum
verdict: wrong_value illegal_access
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1), padded = (n + 63) / 64 * 64;
  for (int64_t row = 0; row < y.numel(); ++row) {
    float sum = 0;
    for (int64_t i = 0; i < padded; ++i) sum += in[row * n + i];
    out[row] = sum;
  }
}
"""
kernels = load_inline("past", cpp_sources=CPP, functions="row_sum", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[:-1])
        kernels.row_sum(x, y)
        return y
