"""Row 54: torch does the work, and an NVRTC kernel copies the outcome.

task: gate
device: cuda
verdict: not_custom
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void copy(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
"""
copy = torch.cuda._compile_kernel(SOURCE, "copy")


class ModelNew(nn.Module):
    def forward(self, x):
        outcome = torch.relu(x) * 2 + x
        y = torch.empty_like(outcome)
        n = y.numel()
        copy(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1), args=[outcome, y, n])
        return y
