// A Number as it is, or a float32 in PARTS parts of which each is what the ones before leave over.
template <typename T>
struct Part {
  using type = T;
};

template <>
struct Part<float> {
  using type = __nv_bfloat16;
};

using Narrow = Part<Number>::type;

// A block of a matrix of ROWS x COLUMNS in shared memory, part by part, with zeros outside.
template <int PARTS, int BLOCK_M, int BLOCK_N, int WIDTH, int THREADS, int ROWS, int COLUMNS,
          long long ROW_STRIDE, long long COLUMN_STRIDE>
__device__ __forceinline__ void read_parts(const Number* from, int row, int column, Narrow* to) {
  constexpr bool IN_ROWS = COLUMN_STRIDE == 1;  // neighbouring threads read what lies side by side
#pragma unroll 4
  for (int at = threadIdx.x; at < BLOCK_M * BLOCK_N; at += THREADS) {
    const int down = IN_ROWS ? at / BLOCK_N : at % BLOCK_M;
    const int along = IN_ROWS ? at % BLOCK_N : at / BLOCK_M;
    const bool inside = row + down < ROWS && column + along < COLUMNS;
    const Number* place = from + (row + down) * ROW_STRIDE + (column + along) * COLUMN_STRIDE;
    float value = inside ? static_cast<float>(value_of(*place)) : 0.0f;
    for (int part = 0; part < PARTS; ++part) {
      Narrow* kept = to + (part * BLOCK_M + down) * WIDTH + along;
      put(kept, value);
      value -= value_of(*kept);
    }
  }
}

// a @ b + bias for every matrix of a batch, 16 x 16 numbers at a time by tensor cores. Of the
// products of parts those too small to matter are left out; the others are added from the smallest
// on, and their sum to the total outside, since tensor cores cut off low bits of what they add to.
template <bool WITH_BIAS, int ROWS, int COLUMNS, int DEPTH,
          long long A_MATRIX, long long A_ROW, long long A_COLUMN,
          long long B_MATRIX, long long B_ROW, long long B_COLUMN,
          long long BIAS_MATRIX, long long BIAS_ROW, long long BIAS_COLUMN,
          long long OUT_MATRIX, long long OUT_ROW, long long OUT_COLUMN,
          int BLOCK_M, int BLOCK_N, int BLOCK_K, int GROUP_M, int PARTS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
    product_kernel(const Number* a, const Number* b, const Number* bias, Number* out) {
  using namespace nvcuda;
  constexpr int DOWN = BLOCK_M >= BLOCK_N ? WARPS / 2 : 2, ALONG = WARPS / DOWN;
  constexpr int M = BLOCK_M / DOWN / 16, N = BLOCK_N / ALONG / 16;
  constexpr int A_WIDTH = BLOCK_K + 8, B_WIDTH = BLOCK_N + 8;  // other banks for the next row
  constexpr int TALL = (ROWS + BLOCK_M - 1) / BLOCK_M, WIDE = (COLUMNS + BLOCK_N - 1) / BLOCK_N;
  extern __shared__ __align__(128) unsigned char memory[];
  Narrow* left = reinterpret_cast<Narrow*>(memory);
  Narrow* right = left + PARTS * BLOCK_M * A_WIDTH;

  const int matrix = blockIdx.x / (TALL * WIDE), tile = blockIdx.x % (TALL * WIDE);
  const int first = tile / (GROUP_M * WIDE) * GROUP_M, place = tile % (GROUP_M * WIDE);
  const int height = TALL - first < GROUP_M ? TALL - first : GROUP_M;
  const int row = (first + place % height) * BLOCK_M, column = place / height * BLOCK_N;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int down = warp / ALONG * M * 16, along = warp % ALONG * N * 16;
  a += matrix * A_MATRIX;
  b += matrix * B_MATRIX;

  wmma::fragment<wmma::accumulator, 16, 16, 16, float> total[M][N], sums[M][N];
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) wmma::fill_fragment(total[m][n], 0.0f);
  for (int start = 0; start < DEPTH; start += BLOCK_K) {
    __syncthreads();
    read_parts<PARTS, BLOCK_M, BLOCK_K, A_WIDTH, 32 * WARPS, ROWS, DEPTH, A_ROW, A_COLUMN>(
        a, row, start, left);
    read_parts<PARTS, BLOCK_K, BLOCK_N, B_WIDTH, 32 * WARPS, DEPTH, COLUMNS, B_ROW, B_COLUMN>(
        b, start, column, right);
    __syncthreads();
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n) wmma::fill_fragment(sums[m][n], 0.0f);
#pragma unroll
    for (int order = PARTS - 1; order >= 0; --order) {
      if (order == 0 && PARTS > 1)  // infinity less itself, if an operand is infinite
        for (int m = 0; m < M; ++m)
          for (int n = 0; n < N; ++n)
            for (int e = 0; e < sums[m][n].num_elements; ++e)
              if (sums[m][n].x[e] != sums[m][n].x[e]) sums[m][n].x[e] = 0.0f;
#pragma unroll
      for (int part = 0; part <= order; ++part)
        for (int k = 0; k < BLOCK_K; k += 16) {
          wmma::fragment<wmma::matrix_b, 16, 16, 16, Narrow, wmma::row_major> y[N];
          for (int n = 0; n < N; ++n)
            wmma::load_matrix_sync(
                y[n], right + ((order - part) * BLOCK_K + k) * B_WIDTH + along + n * 16, B_WIDTH);
          for (int m = 0; m < M; ++m) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, Narrow, wmma::row_major> x;
            wmma::load_matrix_sync(
                x, left + (part * BLOCK_M + down + m * 16) * A_WIDTH + k, A_WIDTH);
            for (int n = 0; n < N; ++n) wmma::mma_sync(sums[m][n], x, y[n], sums[m][n]);
          }
        }
    }
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n)
        for (int e = 0; e < total[m][n].num_elements; ++e)
          total[m][n].x[e] += sums[m][n].x[e];
  }

  float* staged = reinterpret_cast<float*>(memory) + warp * 256;
  __syncthreads();
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      wmma::store_matrix_sync(staged, total[m][n], 16, wmma::mem_row_major);
      __syncwarp();
      for (int at = lane; at < 256; at += 32) {
        const int y = row + down + m * 16 + at / 16, x = column + along + n * 16 + at % 16;
        if (y >= ROWS || x >= COLUMNS) continue;
        float value = staged[at];
        if (WITH_BIAS)
          value += value_of(bias[matrix * BIAS_MATRIX + y * BIAS_ROW + x * BIAS_COLUMN]);
        put(out + matrix * OUT_MATRIX + y * OUT_ROW + x * OUT_COLUMN, value);
      }
      __syncwarp();
    }
}
