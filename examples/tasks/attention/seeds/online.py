"""Attention over blocks of keys with a running maximum, as in FlashAttention (Dao et al., 2022).

Scores of one block of keys exist at a time, so that the scratch memory does not grow with the
length. Whenever the maximum of a query rises, what was summed so far is corrected.
"""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "WIDTH": (4, 8, 16),
    "TILE_ROWS": (4, 6, 8, 12),
    "TILE_VECTORS": (1, 2, 3),
    "KEY_PANELS": (1, 2, 4, 8),
}

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

using tvm::ffi::TensorView;

constexpr int WIDTH = 16;        // floats in a vector: 16 for AVX-512, 8 for AVX2, 4 elsewhere
constexpr int TILE_ROWS = 8;     // rows times vectors is the number of sums kept in registers
constexpr int TILE_VECTORS = 2;  // vectors side by side in a tile
constexpr int KEY_PANELS = 4;    // panels of keys in a block

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

// Columns of `b` (depth x columns) side by side for every k, zeros beyond the last: the innermost
// loop then reads memory in order.
static void pack_panel(const float* b, int64_t ldb, int64_t depth, int64_t columns, float* panel) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t j = 0; j < TILE_COLUMNS; ++j) {
      panel[k * TILE_COLUMNS + j] = j < columns ? b[k * ldb + j] : 0.0f;
    }
  }
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

// exp(scale (x - maximum)) in place of x; returns the sum.
static float exponentials(float* x, float maximum, float scale, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    x[i] = exp_nonpositive((x[i] - maximum) * scale);
    sum += x[i];
  }
  return sum;
}

static void store_tile(const Tile& tile, int64_t rows, int64_t columns, float* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r) std::memcpy(c + r * ldc, tile.sums[r], columns * 4);
}

// c = factor c + tile, or the tile alone where nothing came before.
static void add_scaled(const Tile& tile, const float* factor, bool first, int64_t rows,
                       int64_t columns, float* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r) {
    float values[TILE_COLUMNS];
    std::memcpy(values, tile.sums[r], sizeof values);
    float* row = c + r * ldc;
    for (int64_t j = 0; j < columns; ++j) {
      row[j] = first ? values[j] : row[j] * factor[r] + values[j];
    }
  }
}

// The keys of a head turned to columns, and its values, both as panels of TILE_COLUMNS columns.
struct Head {
  int64_t keys, width;
  std::vector<float> key_panels, value_panels;

  Head(const float* k, const float* v, int64_t keys, int64_t width) : keys(keys), width(width) {
    key_panels.resize(panels(keys) * width * TILE_COLUMNS);
    for (int64_t p = 0; p < panels(keys); ++p) {
      const int64_t first = p * TILE_COLUMNS;
      pack_transposed(k + first * width, width, width, keys - first, key_panel(p));
    }
    value_panels.resize(panels(width) * keys * TILE_COLUMNS);
    for (int64_t p = 0; p < panels(width); ++p) {
      const int64_t first = p * TILE_COLUMNS;
      pack_panel(v + first, width, keys, width - first, value_panel(p));
    }
  }

  static int64_t panels(int64_t columns) { return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS; }
  float* key_panel(int64_t p) { return key_panels.data() + p * width * TILE_COLUMNS; }
  float* value_panel(int64_t p) { return value_panels.data() + p * keys * TILE_COLUMNS; }
};

// One query's running softmax: what its exponentials are relative to, and their sum.
struct Running {
  float maximum = -INFINITY, sum = 0.0f;
};

// Turns the scores of a block into exponentials; returns the factor for all that came before.
static float advance(Running& running, float* scores, int64_t n, float scale) {
  const float higher = std::max(running.maximum, row_maximum(scores, n));
  const float factor = exp_nonpositive((running.maximum - higher) * scale);
  running.sum = running.sum * factor + exponentials(scores, higher, scale, n);
  running.maximum = higher;
  return factor;
}

// `rows` queries (at most TILE_ROWS) of a head, one block of keys after the other.
static void attend(const float* q, int64_t rows, Head& head, float scale, float* y) {
  constexpr int BLOCK = KEY_PANELS * TILE_COLUMNS;
  const int64_t keys = head.keys, width = head.width;
  float scores[TILE_ROWS * BLOCK], factor[TILE_ROWS];
  Running running[TILE_ROWS];
  for (int64_t start = 0; start < keys; start += BLOCK) {
    const int64_t count = std::min<int64_t>(BLOCK, keys - start);
    for (int64_t p = 0; p < Head::panels(count); ++p) {
      const float* panel = head.key_panel(start / TILE_COLUMNS + p);
      const Tile tile = multiply_tile(q, width, rows, panel, width);
      store_tile(tile, rows, TILE_COLUMNS, scores + p * TILE_COLUMNS, BLOCK);
    }
    for (int64_t r = 0; r < rows; ++r) {
      factor[r] = advance(running[r], scores + r * BLOCK, count, scale);
    }
    for (int64_t p = 0; p < Head::panels(width); ++p) {
      const int64_t first = p * TILE_COLUMNS;
      const int64_t columns = std::min<int64_t>(TILE_COLUMNS, width - first);
      const float* panel = head.value_panel(p) + start * TILE_COLUMNS;
      const Tile tile = multiply_tile(scores, BLOCK, rows, panel, count);
      add_scaled(tile, factor, start == 0, rows, columns, y + first, width);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) y[r * width + j] /= running[r].sum;
  }
}

void attention(TensorView q, TensorView k, TensorView v, double scale, TensorView y) {
  const int64_t heads = q.size(0), queries = q.size(1), keys = k.size(1), width = q.size(2);
  const float *query = floats(q), *key = floats(k), *value = floats(v);
  float* out = floats(y);
#pragma omp parallel for schedule(dynamic)
  for (int64_t h = 0; h < heads; ++h) {
    Head head(key + h * keys * width, value + h * keys * width, keys, width);
    for (int64_t i = 0; i < queries; i += TILE_ROWS) {
      const int64_t rows = std::min<int64_t>(TILE_ROWS, queries - i);
      const int64_t start = (h * queries + i) * width;
      attend(query + start, rows, head, static_cast<float>(scale), out + start);
    }
  }
}
"""

# No -ffast-math: NaN and infinity must come out as they do from the reference.
kernel = tvm_ffi.cpp.load_inline(
    "attention_online",
    cpp_sources=SOURCE,
    functions=["attention"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        y = torch.empty_like(q)
        kernel.attention(q, k, v, q.shape[-1] ** -0.5, y)
        return y
