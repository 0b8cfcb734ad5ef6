"""The backward pass of `gated` in one loop of C++."""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
using View = tvm::ffi::TensorView;

void backward(View grad, View x, View gate, View to_x, View to_gate) {
  const float* d = static_cast<const float*>(grad.data_ptr());
  const float* a = static_cast<const float*>(x.data_ptr());
  const float* b = static_cast<const float*>(gate.data_ptr());
  float* da = static_cast<float*>(to_x.data_ptr());
  float* db = static_cast<float*>(to_gate.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) {
    const float r = b[i] > 0 ? b[i] : 0.0f;
    da[i] = d[i] * r * r;
    db[i] = d[i] * a[i] * 2.0f * r;
  }
}
"""
FLAGS = ["-O3", "-march=native"]
kernels = load_inline("gated_backward", cpp_sources=CPP, functions="backward", extra_cflags=FLAGS)


class ModelNew(nn.Module):
    def forward(self, grad_output, x, gate):
        grad_output, x, gate = (each.contiguous() for each in (grad_output, x, gate))
        to_x, to_gate = torch.empty_like(x), torch.empty_like(x)
        kernels.backward(grad_output, x, gate, to_x, to_gate)
        return to_x, to_gate
