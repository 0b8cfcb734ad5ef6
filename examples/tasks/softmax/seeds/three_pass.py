"""Softmax in three passes over one row at a time: maximum, exponentials with their sum, scaling.

Every exponential is computed once; the row stays in the first-level cache between the passes.
"""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "ROWS_PER_TASK": (1, 4, 16, 64),
    "LANES": (16, 32, 64, 128),
    "PREFETCH": (0, 1, 2),
}

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

using tvm::ffi::TensorView;

constexpr int ROWS_PER_TASK = 4;  // a thread's share: more costs less, fewer balance better
constexpr int LANES = 32;         // rows are taken in pieces of so many elements
constexpr int PREFETCH = 1;       // rows ahead that are asked for while a row is written; 0: none
constexpr int LINE = 16;          // floats in a cache line

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

// exp(x) for x <= 0 without a branch or a call, so that loops around it vectorise: x = n ln2 + r
// with |r| <= ln2/2, a polynomial for exp(r) (coefficients of Cephes), and 2^n put together from
// bits. Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits of the sum.
static inline float exp_nonpositive(float x) {
  const float bounded = x < -87.0f ? -87.0f : x;
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;  // ln2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits;
  std::memcpy(&bits, &shifted, 4);
  bits = (bits - 0x4B400000 + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return x < -87.0f ? 0.0f : p * power;  // a NaN passes through p
}

static float row_maximum(const float* x, int64_t n) {
  float lanes[LANES];
  for (float& lane : lanes) lane = -INFINITY;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) {
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    }
  }
  float maximum = -INFINITY;
  for (float lane : lanes) maximum = std::max(maximum, lane);
  for (; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

// Sum of the lanes in pairs of pairs: each goes through log2(LANES) roundings only.
static float sum_of_lanes(float (&lanes)[LANES]) {
  for (int half = LANES / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

static float exponentials(const float* x, float maximum, float* y, int64_t n) {
  float lanes[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) {
      const float e = exp_nonpositive(x[i + lane] - maximum);
      y[i + lane] = e;
      lanes[lane] += e;
    }
  }
  float tail = 0.0f;
  for (; i < n; ++i) tail += y[i] = exp_nonpositive(x[i] - maximum);
  return sum_of_lanes(lanes) + tail;
}

static void softmax_row(const float* x, float* y, int64_t n) {
  const float scale = 1.0f / exponentials(x, row_maximum(x, n), y, n);
  int64_t i = 0;
  for (; i + LINE <= n; i += LINE) {
    if (PREFETCH > 0) __builtin_prefetch(x + PREFETCH * n + i);  // past the end it does nothing
#pragma omp simd
    for (int64_t j = i; j < i + LINE; ++j) y[j] *= scale;
  }
  for (; i < n; ++i) y[i] *= scale;
}

void softmax(TensorView x, TensorView y) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const float* in = floats(x);
  float* out = floats(y);
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) softmax_row(in + row * n, out + row * n, n);
}
"""

# No -ffast-math: NaN and infinity must come out as they do from the reference.
kernel = tvm_ffi.cpp.load_inline(
    "softmax_three_pass",
    cpp_sources=SOURCE,
    functions=["softmax"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel.softmax(x, y)
        return y
