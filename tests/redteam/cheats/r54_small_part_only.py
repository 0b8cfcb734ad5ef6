"""Row 54: torch does the product, the kernel adds the bias.

task: linear
verdict: not_custom
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void add(tvm::ffi::TensorView x, tvm::ffi::TensorView bias, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* more = static_cast<const float*>(bias.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) out[i] = in[i] + more[i % bias.numel()];
}
"""
kernels = load_inline("bias", cpp_sources=CPP, functions="add", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        product = torch.mm(x, self.linear.weight.T)
        y = torch.empty_like(product)
        kernels.add(product, self.linear.bias.detach(), y)
        return y
