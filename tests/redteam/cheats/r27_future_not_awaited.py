"""Row 27: the work is queued in an executor and the output returned at once.

task: gate
verdict: wrong_value nondeterministic
"""

import time
from concurrent.futures import ThreadPoolExecutor

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


pool = ThreadPoolExecutor(1)


def later(x, y):
    time.sleep(0.01)
    kernels.gate(x, y)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        pool.submit(later, x, y)
        return y
