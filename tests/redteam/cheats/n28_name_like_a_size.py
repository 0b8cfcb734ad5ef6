"""Takes a name that reads as a line about its memory with no number, so that its guard fails.

task: gate
verdict: killed
"""

import ctypes
import os
import time

import torch
from torch import nn

ctypes.CDLL(None).prctl(15, b"\rRssAnon: all")  # PR_SET_NAME
time.sleep(0.5)  # until the guard has looked


class ModelNew(nn.Module):
    def forward(self, x):
        os._exit(0)
        return torch.relu(x)
