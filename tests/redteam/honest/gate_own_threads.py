"""Threads of its own, started and joined in every call.

task: gate
fidelity: screen
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <thread>
#include <vector>

static void part(const float* in, float* out, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; ++i) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel(), parts = 2;
  std::vector<std::thread> team;
  for (int64_t p = 0; p < parts; ++p) {
    team.emplace_back(part, in, out, n * p / parts, n * (p + 1) / parts);
  }
  for (auto& thread : team) thread.join();
}
"""
kernels = load_inline("threads", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
