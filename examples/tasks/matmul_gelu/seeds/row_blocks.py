"""Linear layer with GELU applied to each tile while it is in registers and cache.

Eager writes the product, reads it again and writes the activations. Here all of the weights are
packed once (they fit the second-level cache), then each thread finishes whole rows of the output.
"""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "WIDTH": (4, 8, 16),
    "TILE_ROWS": (4, 6, 8, 12),
    "TILE_VECTORS": (1, 2, 3),
}

SOURCE = r"""
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

using tvm::ffi::TensorView;

constexpr int WIDTH = 16;        // floats in a vector: 16 for AVX-512, 8 for AVX2, 4 elsewhere
constexpr int TILE_ROWS = 8;     // rows times vectors is the number of sums kept in registers
constexpr int TILE_VECTORS = 2;  // vectors side by side in a tile

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

typedef float vec __attribute__((vector_size(WIDTH * 4)));
typedef vec unaligned_vec __attribute__((aligned(4), may_alias));
constexpr int TILE_COLUMNS = TILE_VECTORS * WIDTH;

// Calls f(0), ..., f(N - 1) with constants: only arrays indexed by constants live in registers.
template <int N, typename F>
static inline __attribute__((always_inline)) void unrolled(F f) {
  if constexpr (N > 0) {
    unrolled<N - 1>(f);
    f(std::integral_constant<int, N - 1>{});
  }
}

struct Tile {
  vec sums[TILE_ROWS][TILE_VECTORS];
};

// A tile of the product: TILE_ROWS x TILE_COLUMNS sums that live in registers while k runs.
// `a` has `rows` rows of stride `lda`; `panel` holds TILE_COLUMNS contiguous values for every k.
static inline Tile multiply_tile(const float* a, int64_t lda, int64_t rows, const float* panel,
                                 int64_t depth) {
  const float* row[TILE_ROWS];  // missing rows repeat the last one: no code for tails
  for (int r = 0; r < TILE_ROWS; ++r) row[r] = a + (r < rows ? r : rows - 1) * lda;
  Tile tile = {};
  for (int64_t k = 0; k < depth; ++k, panel += TILE_COLUMNS) {
    vec b[TILE_VECTORS];
    unrolled<TILE_VECTORS>([&](auto v) {
      b[v] = *reinterpret_cast<const unaligned_vec*>(panel + v * WIDTH);
    });
    unrolled<TILE_ROWS>([&](auto r) {
      unrolled<TILE_VECTORS>([&](auto v) { tile.sums[r][v] += row[r][k] * b[v]; });
    });
  }
  return tile;
}

// Rows of `w` (columns x depth) turned to columns, side by side for every k, zeros beyond the last:
// the innermost loop then reads memory in order.
static void pack_transposed(const float* w, int64_t ldw, int64_t depth, int64_t columns,
                            float* panel) {
  for (int64_t j = 0; j < TILE_COLUMNS; ++j) {
    for (int64_t k = 0; k < depth; ++k) {
      panel[k * TILE_COLUMNS + j] = j < columns ? w[j * ldw + k] : 0.0f;
    }
  }
}

// exp(x), bounded to [-87, 88], without a branch or a call, so that loops vectorise: x = n ln2 + r
// with |r| <= ln2/2, a polynomial for exp(r) (coefficients of Cephes), and 2^n put together from
// bits. Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits of the sum.
static inline float exp_bounded(float x) {
  const float low = x < -87.0f ? -87.0f : x;
  const float bounded = low > 88.0f ? 88.0f : low;
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
  return p * power;  // a NaN passes through p
}

// 0.5 v (1 + tanh(z)) is v / (1 + exp(-2 z)): one exponential, no cancellation where tanh is -1.
static inline float gelu(float v) {
  const float z = 0.79788456f * (v + 0.044715f * v * v * v);
  return v / (1.0f + exp_bounded(-2.0f * z));
}

static void activate_tile(const Tile& tile, const float* bias, int64_t rows, int64_t columns,
                          float* y, int64_t ldy) {
  for (int64_t r = 0; r < rows; ++r) {
    float values[TILE_COLUMNS];
    std::memcpy(values, tile.sums[r], sizeof values);
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) y[r * ldy + j] = gelu(values[j] + bias[j]);
  }
}

void matmul_gelu(TensorView x, TensorView weight, TensorView bias, TensorView y) {
  const int64_t m = x.size(0), depth = x.size(1), n = weight.size(0);
  const float *in = floats(x), *w = floats(weight), *b = floats(bias);
  float* out = floats(y);
  const int64_t panels = (n + TILE_COLUMNS - 1) / TILE_COLUMNS, size = depth * TILE_COLUMNS;
  std::vector<float> packed(panels * size);
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t j = p * TILE_COLUMNS, columns = std::min<int64_t>(TILE_COLUMNS, n - j);
      pack_transposed(w + j * depth, depth, depth, columns, packed.data() + p * size);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < m; i += TILE_ROWS) {
      const int64_t rows = std::min<int64_t>(TILE_ROWS, m - i);
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t j = p * TILE_COLUMNS, columns = std::min<int64_t>(TILE_COLUMNS, n - j);
        const float* panel = packed.data() + p * size;
        const Tile tile = multiply_tile(in + i * depth, depth, rows, panel, depth);
        activate_tile(tile, b + j, rows, columns, out + i * n + j, n);
      }
    }
  }
}
"""

# No -ffast-math: NaN and infinity must come out as they do from the reference.
kernel = tvm_ffi.cpp.load_inline(
    "matmul_gelu_row_blocks",
    cpp_sources=SOURCE,
    functions=["matmul_gelu"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.new_empty(x.shape[0], self.weight.shape[0])
        kernel.matmul_gelu(x.contiguous(), self.weight.detach(), self.bias.detach(), y)
        return y
