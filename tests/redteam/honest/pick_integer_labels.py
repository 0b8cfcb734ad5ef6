"""Integer labels as an input.

task: pick
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void pick(tvm::ffi::TensorView x, tvm::ffi::TensorView labels, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  const int64_t* at = static_cast<const int64_t*>(labels.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t row = 0; row < y.numel(); ++row) out[row] = 2 * in[row * x.size(1) + at[row]];
}
"""
kernels = load_inline("pick", cpp_sources=CPP, functions="pick", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x, labels):
        y = x.new_empty(labels.shape)
        kernels.pick(x, labels, y)
        return y
