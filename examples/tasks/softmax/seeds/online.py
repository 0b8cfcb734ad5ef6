"""Softmax in two passes with a running maximum (online normaliser, Milakov and Gimelshein, 2018).

The first pass takes maximum and exponentials together, block by block, the exponentials relative to
the maximum so far; the second brings all blocks to the same maximum and sum. One sweep less than
with the maximum taken first, which counts where rows do not fit the caches.
"""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "ROWS_PER_TASK": (1, 4, 16, 64),
    "BLOCK": (64, 256, 1024, 4096),
    "PREFETCH": (0, 1, 2),
}

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

using tvm::ffi::TensorView;

constexpr int ROWS_PER_TASK = 4;  // a thread's share: more costs less, fewer balance better
constexpr int BLOCK = 256;        // elements between two corrections of the running sum
constexpr int PREFETCH = 1;       // rows ahead that are asked for while a row is written; 0: none
constexpr int LINE = 16;          // floats in a cache line
constexpr int SUMMED = 64;        // numbers that are added in float32

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
  float maximum = -INFINITY;
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

// A lane that holds 1 already loses up to 2^-25 with each number that it adds: so it adds few.
static double exponentials(const float* x, float maximum, float* y, int64_t n) {
  double sum = 0.0;
  for (int64_t start = 0; start < n; start += SUMMED) {
    const int64_t stop = std::min<int64_t>(start + SUMMED, n);
    float part = 0.0f;
#pragma omp simd reduction(+ : part)
    for (int64_t i = start; i < stop; ++i) part += y[i] = exp_nonpositive(x[i] - maximum);
    sum += part;
  }
  return sum;
}

static void softmax_row(const float* x, float* y, int64_t n) {
  static thread_local std::vector<float> maxima;  // what the exponentials of a block refer to
  maxima.clear();
  float maximum = -INFINITY;
  double sum = 0.0;
  for (int64_t start = 0; start < n; start += BLOCK) {
    const int64_t width = std::min<int64_t>(BLOCK, n - start);
    const float higher = std::max(maximum, row_maximum(x + start, width));
    // Nothing finite seen yet: -inf - -inf would make a NaN of exponentials that are zero.
    const float reference = higher > -INFINITY ? higher : 0.0f;
    sum = sum * exp_nonpositive(maximum - reference);
    sum += exponentials(x + start, reference, y + start, width);
    maxima.push_back(reference);
    maximum = higher;
  }
  for (int64_t start = 0; start < n; start += BLOCK) {
    const int64_t stop = std::min<int64_t>(start + BLOCK, n);
    const auto factor = static_cast<float>(exp_nonpositive(maxima[start / BLOCK] - maximum) / sum);
    for (int64_t i = start; PREFETCH > 0 && i < stop; i += LINE) {
      __builtin_prefetch(x + PREFETCH * n + i);  // past the end it does nothing
    }
#pragma omp simd
    for (int64_t i = start; i < stop; ++i) y[i] *= factor;
  }
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
    "softmax_online",
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
