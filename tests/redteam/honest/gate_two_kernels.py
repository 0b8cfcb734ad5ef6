"""Two kernels with a buffer between them.

task: gate
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void positive(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) out[i] = in[i] > 0 ? in[i] : 0.0f;
}

void combine(tvm::ffi::TensorView p, tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* left = static_cast<const float*>(p.data_ptr());
  const float* right = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) out[i] = left[i] * 2 + right[i];
}
"""
kernels = load_inline(
    "two", cpp_sources=CPP, functions=["positive", "combine"], extra_cflags=["-O3"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        between, y = torch.empty_like(x), torch.empty_like(x)
        kernels.positive(x, between)
        kernels.combine(between, x, y)
        return y
