"""Views, reshapes, a transposed copy and a slice around the kernel.

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


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = gate(x.unsqueeze(0).reshape(-1).contiguous())
        y = y.view(columns, rows) if rows == columns else y.view(rows, columns)
        return y.t().contiguous().transpose(0, 1).contiguous()[:rows].reshape(x.shape)
