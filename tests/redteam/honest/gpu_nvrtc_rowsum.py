"""NVRTC, a warp for each row, by a template whose name is mangled.

task: rowsum
device: cuda
fidelity: screen
"""

from torch import nn
from torch.cuda import _compile_kernel

SOURCE = r"""
template <int WARPS>
__global__ void sum_rows(const float* x, float* y, int rows, int columns) {
  const int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* from = x + static_cast<long long>(row) * columns;
  float total = 0.0f;
  for (int at = lane; at < columns; at += 32) total += from[at];
  for (int step = 16; step > 0; step /= 2) total += __shfl_down_sync(0xffffffffu, total, step);
  if (lane == 0) y[row] = total;
}
"""
sum_rows = _compile_kernel(SOURCE, "sum_rows<4>")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = x.new_empty(rows)
        sum_rows(grid=((rows + 3) // 4, 1, 1), block=(128, 1, 1), args=[x, y, rows, columns])
        return y
