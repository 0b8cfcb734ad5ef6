"""Row 62: never returns, and ignores what can be ignored.

task: gate
verdict: timeout
"""

import signal
import time

from torch import nn

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            time.sleep(1)
