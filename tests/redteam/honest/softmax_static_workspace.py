"""Exponentials go to a buffer that lives as long as the thread.

task: softmax
fidelity: screen
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <algorithm>
#include <cmath>
#include <vector>

static thread_local std::vector<float> workspace;

void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1), rows = x.numel() / n;
  workspace.resize(n);
  for (int64_t row = 0; row < rows; ++row, in += n, out += n) {
    const float largest = *std::max_element(in, in + n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += workspace[i] = std::exp(in[i] - largest);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(workspace[i] / sum);
  }
}
"""
kernels = load_inline("workspace", cpp_sources=CPP, functions="softmax", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.softmax(x, y)
        return y
