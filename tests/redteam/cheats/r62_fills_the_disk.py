"""Row 62: writes until the disk is full.

task: gate
verdict: runtime_exception killed oom timeout
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for number in range(1 << 20):
            with open(f"{number}", "wb") as file:
                for _ in range(64):
                    file.write(bytes(16 << 20))
