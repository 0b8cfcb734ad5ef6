"""Keeps a plan (a table of offsets) for every shape that it has met.

task: gate
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView starts, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  const int64_t* from = static_cast<const int64_t*>(starts.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t part = 0; part + 1 < starts.numel(); ++part) {
    for (int64_t i = from[part]; i < from[part + 1]; ++i) out[i] = in[i] > 0 ? 3 * in[i] : in[i];
  }
}
"""
kernels = load_inline("plan", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.plans = {}

    def forward(self, x):
        if x.shape not in self.plans:
            n = x.numel()
            self.plans[x.shape] = torch.tensor([n * part // 4 for part in range(5)])
        y = torch.empty_like(x)
        kernels.gate(x, self.plans[x.shape], y)
        return y
