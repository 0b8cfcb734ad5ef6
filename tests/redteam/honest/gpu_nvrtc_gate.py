"""NVRTC, a loop over the grid.

task: gate
device: cuda
fidelity: screen
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void gate(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float value = x[i];
    y[i] = 2.0f * (value > 0.0f ? value : (value == value ? 0.0f : value)) + value;
  }
}
"""
gate = torch.cuda._compile_kernel(SOURCE, "gate")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        blocks = min((x.numel() + 255) // 256, 1024)
        gate(grid=(blocks, 1, 1), block=(256, 1, 1), args=[x, y, x.numel()])
        return y
