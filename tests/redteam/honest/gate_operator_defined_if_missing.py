"""The kernel as an operator that is defined unless it is there, and so once in a process.

task: gate
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


if not hasattr(torch.ops.redteam_if_missing, "gate"):
    library = torch.library.Library("redteam_if_missing", "DEF")
    library.define("gate(Tensor x) -> Tensor")
    library.impl("gate", gate, "CompositeExplicitAutograd")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.redteam_if_missing.gate(x)
