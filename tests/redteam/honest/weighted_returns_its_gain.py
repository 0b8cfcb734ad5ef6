"""A new output, and the parameter itself, as the reference returns it.

task: weighted
fidelity: screen
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void weighted(tvm::ffi::TensorView x, tvm::ffi::TensorView g, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* gain = static_cast<const float*>(g.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t rows = x.size(0), columns = x.size(1);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < columns; ++i) {
      const float value = in[row * columns + i];
      out[row * columns + i] = (value > 0 ? value : 0.0f) * gain[i];
    }
}
"""
kernels = load_inline("weighted", cpp_sources=CPP, functions="weighted", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x):
        y = torch.empty_like(x)
        kernels.weighted(x, self.gain.detach(), y)
        return y, self.gain
