// Numbers of a thread: N elements of a row.
template <typename T, int N>
struct Elements {
  T at[N];
  __device__ T operator[](int i) const { return at[i]; }
};

template <int N, typename F>
__device__ __forceinline__ auto each(F value) {
  Elements<decltype(value(0)), N> found;
#pragma unroll
  for (int i = 0; i < N; ++i) found.at[i] = value(i);
  return found;
}

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

template <typename T>
__device__ __forceinline__ T value_of(T x) { return x; }

__device__ __forceinline__ float value_of(__half x) { return __half2float(x); }

__device__ __forceinline__ float value_of(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T, typename V>
__device__ __forceinline__ void put(T* to, V x) { *to = static_cast<T>(x); }

__device__ __forceinline__ void put(__half* to, float x) { *to = __float2half(x); }

__device__ __forceinline__ void put(__nv_bfloat16* to, float x) { *to = __float2bfloat16(x); }

template <typename T, typename I, typename O>
__device__ __forceinline__ auto load(const T* from, I at, bool inside, O other) {
  return inside ? value_of(from[at]) : static_cast<decltype(value_of(from[at]))>(other);
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const { return a + b; }
};

struct Product {
  template <typename T>
  __device__ T operator()(T a, T b) const { return a * b; }
};

struct Either {
  template <typename T>
  __device__ T operator()(T a, T b) const { return a | b; }
};

// NaN wins, as it does in PyTorch.
struct Maximum {
  template <typename T>
  __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};

struct Minimum {
  template <typename T>
  __device__ T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

// Integers have functions of their own: large ones are not exact as floats.
template <typename T>
__device__ __forceinline__ T absolute(T x) { return x < 0 ? -x : x; }

__device__ __forceinline__ float absolute(float x) { return fabsf(x); }

template <typename T>
__device__ __forceinline__ T maximum(T a, T b) { return Maximum()(a, b); }

template <typename T>
__device__ __forceinline__ T minimum(T a, T b) { return Minimum()(a, b); }

__device__ __forceinline__ float maximum(float a, float b) { return Maximum()(a, b); }

__device__ __forceinline__ float minimum(float a, float b) { return Minimum()(a, b); }

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <typename T>
__device__ __forceinline__ T other_lane(T mine, int step, int width) {
  static_assert(sizeof(T) % sizeof(int) == 0, "lanes exchange words");
  const unsigned mask = blockDim.x < 32 ? (1u << blockDim.x) - 1 : ~0u;
  int words[sizeof(T) / sizeof(int)];
  memcpy(words, &mine, sizeof(T));
  for (int& word : words) word = __shfl_xor_sync(mask, word, step, width);
  memcpy(&mine, words, sizeof(T));
  return mine;
}

// A maximum, and the sum of exp(value - maximum).
struct Softmax {
  float a, b;
};

struct JoinSoftmax {
  __device__ Softmax operator()(Softmax x, Softmax y) const {
    const float most = Maximum()(x.a, y.a);
    if (most == -infinity()) return {most, x.b + y.b};
    return {most, x.b * expf(x.a - most) + y.b * expf(y.a - most)};
  }
};

__device__ __forceinline__ Softmax online_softmax_combine(float most, float sum, float value) {
  return JoinSoftmax()({most, sum}, {value, 1.0f});
}

__device__ __forceinline__ Softmax online_softmax_combine_with_sum(
    float most, float sum, float other, float other_sum) {
  return JoinSoftmax()({most, sum}, {other, other_sum});
}

// A mean, the sum of squared distances from it, and the number of values.
struct Moments {
  float a, b, c;
};

struct JoinMoments {
  __device__ Moments operator()(Moments x, Moments y) const {
    const float weight = x.c + y.c, share = weight == 0.0f ? 0.0f : y.c / weight;
    const float apart = x.a == y.a ? 0.0f : y.a - x.a;  // both may be infinite
    return {x.a + apart * share, x.b + y.b + apart * apart * x.c * share, weight};
  }
};

__device__ __forceinline__ Moments welford_combine(
    float mean, float squares, float weight, float mean_2, float squares_2, float weight_2) {
  return JoinMoments()({mean, squares, weight}, {mean_2, squares_2, weight_2});
}

__device__ __forceinline__ Moments welford_reduce(
    float value, float mean, float squares, float weight, bool is_first) {
  if (is_first) return {value, 0.0f, 1.0f};
  const float count = weight + 1.0f, apart = value - mean, next = mean + apart / count;
  return {next, squares + apart * (value - next), count};
}

// Threads of a block that share ROWS rows, LANES of them each. Neighbours are in one row if IN_ROWS.
template <int ROWS, int LANES, bool IN_ROWS>
struct Threads {
  static constexpr int WIDTH = !IN_ROWS ? 1 : LANES < 32 ? LANES : 32;
  static constexpr int PARTS = LANES / WIDTH;
  __device__ int lane() const { return IN_ROWS ? threadIdx.x % LANES : threadIdx.x / ROWS; }
  __device__ int row() const { return IN_ROWS ? threadIdx.x / LANES : threadIdx.x % ROWS; }

  // The same for all threads of a row, always added in the same order.
  template <typename T, typename F>
  __device__ T across(T mine, F join) const {
    for (int step = WIDTH / 2; step > 0; step /= 2)
      mine = join(mine, other_lane(mine, step, WIDTH));
    if constexpr (PARTS > 1) {
      __shared__ T parts[PARTS][ROWS];
      __syncthreads();
      if (lane() % WIDTH == 0) parts[lane() / WIDTH][row()] = mine;
      __syncthreads();
      mine = parts[0][row()];
      for (int part = 1; part < PARTS; ++part) mine = join(mine, parts[part][row()]);
    }
    return mine;
  }

  template <typename T, int N, typename F>
  __device__ T reduced(Elements<T, N> x, F join) const {
    T mine = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) mine = join(mine, x[i]);
    return across(mine, join);
  }
};

template <typename G, int N>
__device__ auto together(G threads, Elements<float, N> maxima, Elements<float, N> sums) {
  const auto all = each<N>([&](int i) { return Softmax{maxima[i], sums[i]}; });
  return threads.reduced(all, JoinSoftmax());
}

template <typename G, int N>
__device__ auto moments(
    G threads, Elements<float, N> mean, Elements<float, N> squares, Elements<float, N> weight) {
  const auto all = each<N>([&](int i) { return Moments{mean[i], squares[i], weight[i]}; });
  return threads.reduced(all, JoinMoments());
}
