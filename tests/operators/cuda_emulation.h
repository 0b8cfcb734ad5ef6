// CUDA C++ for the CPU, as far as this project's kernels use it: threads that wait for each other.
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct Dim { unsigned x = 1, y = 1, z = 1; };
static thread_local Dim threadIdx;
static Dim blockIdx, blockDim, gridDim;

namespace emulated {
static std::barrier<>* gate;
static int words[1024];
static std::vector<unsigned char> memory;

template <typename... P, std::size_t... I>
void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*reinterpret_cast<P*>(arguments[I])...);
}

template <typename... P>
int launch(void (*kernel)(P...), void** arguments, const unsigned* sizes) {
  gridDim = {sizes[0], sizes[1], sizes[2]};
  blockDim = {sizes[3], sizes[4], sizes[5]};
  memory.assign(sizes[6] + 1, 0);
  std::barrier<> all(blockDim.x);
  gate = &all;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < blockDim.x; ++t)
    threads.emplace_back([=, &all] {
      threadIdx = {t, 0, 0};
      for (unsigned z = 0; z < gridDim.z; ++z)
        for (unsigned y = 0; y < gridDim.y; ++y)
          for (unsigned x = 0; x < gridDim.x; ++x) {
            all.arrive_and_wait();
            if (t == 0) blockIdx = {x, y, z};
            all.arrive_and_wait();
            call(kernel, arguments, std::index_sequence_for<P...>());
          }
    });
  for (auto& thread : threads) thread.join();
  return 0;
}
}  // namespace emulated

inline void __syncthreads() { emulated::gate->arrive_and_wait(); }
inline void __syncwarp() { __syncthreads(); }

inline int __shfl_xor_sync(unsigned, int value, int step, int) {
  emulated::words[threadIdx.x] = value;
  __syncthreads();
  const int other = emulated::words[threadIdx.x ^ step];
  __syncthreads();
  return other;
}

inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

using __half = _Float16;
inline float __half2float(__half x) { return static_cast<float>(x); }
inline __half __float2half(float x) { return static_cast<__half>(x); }

struct __nv_bfloat16 { unsigned short bits; };
inline float __bfloat162float(__nv_bfloat16 x) { return __int_as_float(x.bits << 16); }
inline __nv_bfloat16 __float2bfloat16(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  if (x != x) return {0x7fff};
  return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// Every thread of a warp has all of a fragment, and all store the same.
namespace nvcuda::wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
enum Order { mem_row_major };
template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  static constexpr int num_elements = 256;
  T x[256];
};
inline float number(float x) { return x; }
inline float number(__half x) { return __half2float(x); }
inline float number(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename F>
void fill_fragment(F& to, float value) {
  for (auto& x : to.x) x = value;
}
template <typename F, typename T>
void load_matrix_sync(F& to, const T* from, unsigned step) {
  for (int i = 0; i < 256; ++i) to.x[i] = from[i / 16 * step + i % 16];
}
template <typename F>
void store_matrix_sync(float* to, const F& from, unsigned step, Order) {
  for (int i = 0; i < 256; ++i) to[i / 16 * step + i % 16] = from.x[i];
}
template <typename D, typename A, typename B>
void mma_sync(D& to, const A& a, const B& b, const D& c) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float sum = c.x[i * 16 + j];
      for (int k = 0; k < 16; ++k) sum += number(a.x[i * 16 + k]) * number(b.x[k * 16 + j]);
      to.x[i * 16 + j] = sum;
    }
}
}  // namespace nvcuda::wmma
