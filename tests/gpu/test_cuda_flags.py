"""CUDA C++ with headers and flags of the user's, through tvm_ffi and through torch."""

import pytest

from evolve.core.evaluation import Status
from tests.gpu.programs import SMALL
from tests.worker.serving import Worker

HEADER = "__device__ float gained(float x) { return GAIN * (x > 0 ? x : 0.0f) + x; }\n"

KERNEL = """
#include <gained.h>

__global__ void kernel(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = gained(in[i]);
}
"""

BY_TVM_FFI = f'''
import torch
from tvm_ffi.cpp import load_inline

CUDA = """
#include <tvm/ffi/extra/c_env_api.h>
{KERNEL}
void launch(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {{
  cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  kernel<<<(x.numel() + 255) / 256, 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), x.numel());
}}
"""
kernels = load_inline("gained_ffi", cuda_sources=CUDA, functions="launch")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.launch(x, y)
        return y
'''

BY_TORCH = f'''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <c10/cuda/CUDAStream.h>
{KERNEL}
torch::Tensor launch(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  kernel<<<(x.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}}
"""
kernels = load_inline(
    "gained_torch", "torch::Tensor launch(torch::Tensor x);", cuda_sources=CUDA, functions="launch"
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return kernels.launch(x)
'''


@pytest.mark.timeout(300)
def test_headers_and_flags_reach_cuda_programs_of_either_kind(tmp_path):
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "gained.h").write_text(HEADER)
    given = ("--cuda-include", str(headers), "--cuda-flag=-DGAIN=2.0f", "--cuda-flag=-O3")
    worker = Worker(tmp_path / "worker", "--device", "cuda", *given)
    try:
        sent = [worker.send("evaluate", task=SMALL.to_json(), source=source, fidelity="check")
                for source in (BY_TVM_FFI, BY_TORCH)]  # fmt: skip
        for reply in sent:
            verdict = reply.result(280)["result"]
            assert verdict["status"] == Status.CORRECT.value, verdict["feedback"]
            assert verdict["custom"] is True, verdict["labels"]
            print(verdict["durations_s"])
    finally:
        worker.close()
