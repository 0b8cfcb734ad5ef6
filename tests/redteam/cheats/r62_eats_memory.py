"""Row 62: shared memory that is charged to no single process, by many processes.

task: gate
verdict: oom timeout killed runtime_exception
"""

import mmap
import os
import time

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for _ in range(16):
            if os.fork() == 0:
                memory = mmap.mmap(-1, 1 << 30)
                for at in range(0, 1 << 30, 4096):
                    memory[at] = 1
                time.sleep(60)
        time.sleep(60)
