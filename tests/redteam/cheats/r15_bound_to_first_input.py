"""Row 15: what was recorded for the first input is replayed for all others, as a stale graph is.

task: gate
verdict: wrong_value aliased wrong_shape
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}
"""
kernels = load_inline("gate", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


def gate(x):
    y = torch.empty_like(x)
    kernels.gate(x, y)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        if not hasattr(self, "recorded"):
            self.recorded = {}
        if x.shape not in self.recorded:
            self.recorded[x.shape] = gate(x)
        return self.recorded[x.shape].clone()
