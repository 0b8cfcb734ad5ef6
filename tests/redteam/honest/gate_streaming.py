"""Stores past the caches, with an unaligned head and tail.

task: gate
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

static float one(float x) { return (x > 0 ? 2 * x : 0.0f) + x; }

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel();
  int64_t i = 0;
#if defined(__SSE2__)
  for (; i < n && reinterpret_cast<uintptr_t>(out + i) % 16; ++i) out[i] = one(in[i]);
  for (; i + 4 <= n; i += 4) {
    const __m128 value = _mm_loadu_ps(in + i);
    const __m128 positive = _mm_max_ps(value, _mm_setzero_ps());
    _mm_stream_ps(out + i, _mm_add_ps(_mm_add_ps(positive, positive), value));
  }
  _mm_sfence();
#endif
  for (; i < n; ++i) out[i] = one(in[i]);
}
"""
kernels = load_inline("streaming", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
