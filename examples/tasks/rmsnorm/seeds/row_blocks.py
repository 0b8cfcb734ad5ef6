"""RMSNorm over blocks of rows: all statistics of a block first, then all of its outputs.

The scale vector is read once per block instead of once per row, in pieces that stay in the
first-level cache. Outputs are written past the caches: no line of them is fetched first, and none
takes room there. That pays off where the output is larger than the last cache.
"""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "BLOCK_ROWS": (2, 4, 8, 16),
    "BLOCK_COLUMNS": (128, 256, 1024, 4096),
    "PREFETCH": (0, 1),
}

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

using tvm::ffi::TensorView;

constexpr int BLOCK_ROWS = 4;        // a thread's share
constexpr int BLOCK_COLUMNS = 256;   // of the scale vector, used for all rows of a block in turn
constexpr int PREFETCH = 1;          // 1 asks for the next block while this one is written
constexpr int LINE = 16;             // floats in a cache line

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

static float sum_of_squares(const float* x, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

static void scale_row(const float* x, const float* weight, float scale, float* y, int64_t n) {
  int64_t i = 0;
#if defined(__SSE2__)
  // Four streaming stores fill one 64-byte line, which then leaves the core as a whole.
  const __m128 factor = _mm_set1_ps(scale);
  if (reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    for (; i + 4 <= n; i += 4) {
      const __m128 scaled = _mm_mul_ps(_mm_loadu_ps(x + i), factor);
      _mm_stream_ps(y + i, _mm_mul_ps(scaled, _mm_loadu_ps(weight + i)));
    }
  }
#endif
#pragma omp simd
  for (int64_t j = i; j < n; ++j) y[j] = x[j] * scale * weight[j];
}

static void normalize_block(const float* x, const float* weight, float eps, float* y, int64_t rows,
                            int64_t n) {
  float scales[BLOCK_ROWS];
  for (int64_t row = 0; row < rows; ++row) {
    scales[row] = 1.0f / std::sqrt(sum_of_squares(x + row * n, n) / n + eps);
  }
  for (int64_t column = 0; column < n; column += BLOCK_COLUMNS) {
    const int64_t width = std::min<int64_t>(BLOCK_COLUMNS, n - column);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t start = row * n + column;
      const float* next = x + BLOCK_ROWS * n + start;  // asking past the end does nothing
      for (int64_t j = 0; PREFETCH && j < width; j += LINE) __builtin_prefetch(next + j);
      scale_row(x + start, weight + column, scales[row], y + start, width);
    }
  }
}

void rmsnorm(TensorView x, TensorView weight, double eps, TensorView y) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const float *in = floats(x), *w = floats(weight);
  float* out = floats(y);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row += BLOCK_ROWS) {
    const int64_t count = std::min<int64_t>(BLOCK_ROWS, rows - row);
    normalize_block(in + row * n, w, static_cast<float>(eps), out + row * n, count, n);
  }
}
"""

# No -ffast-math: NaN and infinity must come out as they do from the reference.
kernel = tvm_ffi.cpp.load_inline(
    "rmsnorm_row_blocks",
    cpp_sources=SOURCE,
    functions=["rmsnorm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel.rmsnorm(x, self.weight.detach(), self.eps, y)
        return y
