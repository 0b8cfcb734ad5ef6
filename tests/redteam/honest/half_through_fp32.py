"""bf16 in and out, fp32 in between.

task: half
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <cstdint>
#include <cstring>

static float widened(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static uint16_t rounded(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const uint16_t* in = static_cast<const uint16_t*>(x.data_ptr());
  uint16_t* out = static_cast<uint16_t*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) {
    const float value = widened(in[i]);
    out[i] = rounded((value > 0 ? 0.5f * value : 0.0f) + value);
  }
}
"""
kernels = load_inline("half", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
