"""Row 9: outcomes are remembered by the address and version of the input.

task: gate
fidelity: screen
verdict: wrong_value nondeterministic aliased honest
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


outcomes = {}


class ModelNew(nn.Module):
    def forward(self, x):
        key = (x.data_ptr(), x._version, x.shape)
        if key not in outcomes:
            outcomes[key] = gate(x)
        return outcomes[key].clone()
