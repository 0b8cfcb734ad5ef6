"""Programs of the corpus, by name."""

from pathlib import Path

HONEST = Path(__file__).parents[1] / "redteam" / "honest"
CHEATS = HONEST.with_name("cheats")


def honest(name: str) -> str:
    return (HONEST / f"{name}.py").read_text()


SCALE_IN_HIP = '''
import torch
from torch import nn
from tvm_ffi.cpp import load_inline

SOURCE = """
#include <hip/hip_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>

__global__ void scale_kernel(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = 2 * in[i];
}

void scale(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const int64_t n = x.numel();
  hipStream_t stream =
      static_cast<hipStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(static_cast<const float*>(x.data_ptr()),
                                                    static_cast<float*>(y.data_ptr()), n);
}
"""
kernels = load_inline("scale", cuda_sources=SOURCE, functions="scale", backend="hip")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.scale(x, y)
        return y
'''
