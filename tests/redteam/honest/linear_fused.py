"""Product and bias in one kernel, reading the reference's parameters.

task: linear
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void linear(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b,
            tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* weight = static_cast<const float*>(w.data_ptr());
  const float* bias = static_cast<const float*>(b.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t rows = x.size(0), k = x.size(1), n = w.size(0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = bias[j];
      for (int64_t i = 0; i < k; ++i) sum += in[row * k + i] * weight[j * k + i];
      out[row * n + j] = sum;
    }
  }
}
"""
kernels = load_inline("fused", cpp_sources=CPP, functions="linear", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        kernels.linear(x, self.linear.weight.detach(), self.linear.bias.detach(), y)
        return y
