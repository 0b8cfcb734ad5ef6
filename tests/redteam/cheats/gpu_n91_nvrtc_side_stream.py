"""Row 1: an NVRTC kernel is launched in a stream of its own, which its launcher takes as a value.

task: gate
device: cuda
fidelity: screen
verdict: wrong_value nondeterministic honest
"""

import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void gate(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * (x[i] > 0.0f ? x[i] : 0.0f) + x[i];
}
"""
gate = torch.cuda._compile_kernel(SOURCE, "gate")
side = []


class ModelNew(nn.Module):
    def forward(self, x):
        if not side:
            side.append(torch.cuda.Stream())
        y = torch.empty_like(x)
        with torch.cuda.stream(side[0]):
            torch.cuda._sleep(200_000)
        n = x.numel()
        gate(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, y, n], stream=side[0])
        return y
