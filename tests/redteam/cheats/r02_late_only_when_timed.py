"""Row 2, 17: as honest as can be while it is checked, late as soon as calls come in a row.

task: gate
fidelity: screen
verdict: wrong_value nondeterministic timing_unbounded honest
"""

import threading
import time

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
        now = time.monotonic()
        hurried = now - getattr(self, "last", 0.0) < 0.0005
        self.last = now
        if not hurried:
            return gate(x)
        y = torch.zeros_like(x)
        threading.Timer(0.01, lambda: kernels.gate(x, y)).start()
        return y
