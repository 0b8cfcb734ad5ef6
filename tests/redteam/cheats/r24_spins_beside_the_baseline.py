"""Row 24: a native thread spins while others are timed.

task: gate
fidelity: screen
verdict: timing_unbounded
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <thread>

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  static bool started = false;
  if (!started) {
    std::thread([] { for (volatile long i = 0;; ++i) {} }).detach();
    started = true;
  }
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}
"""
kernels = load_inline("spin", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
