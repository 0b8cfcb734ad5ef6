"""Row 2: a native thread of the candidate writes the outcome after forward has returned.

task: gate
verdict: wrong_value nondeterministic illegal_access
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <chrono>
#include <thread>

void gate_later(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel();
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int64_t i = 0; i < n; ++i) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
  }).detach();
}
"""
kernels = load_inline("late", cpp_sources=CPP, functions="gate_later", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        self.x, self.y = x, torch.zeros_like(x)
        kernels.gate_later(self.x, self.y)
        return self.y
