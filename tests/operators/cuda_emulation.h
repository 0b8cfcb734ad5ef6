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
static std::vector<char> memory;

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
