"""CUDA C++ through tvm_ffi, on the stream that is current.

task: gate
device: cuda
fidelity: screen
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CUDA = """
#include <tvm/ffi/extra/c_env_api.h>

__global__ void gate_kernel(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const int64_t n = x.numel();
  cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  gate_kernel<<<(n + 255) / 256, 256, 0, stream>>>(static_cast<const float*>(x.data_ptr()),
                                                   static_cast<float*>(y.data_ptr()), n);
}
"""
kernels = load_inline("gate_cuda", cuda_sources=CUDA, functions="gate")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
