"""An output that is a window into a larger buffer.

task: gate
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t rows = x.size(0), n = x.size(1), pitch = y.stride(0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < n; ++i) {
      const float value = in[row * n + i];
      out[row * pitch + i] = value > 0 ? 3 * value : value;
    }
  }
}
"""
kernels = load_inline("strided", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0], x.shape[1] + 16)[:, : x.shape[1]]
        kernels.gate(x, y)
        return y
