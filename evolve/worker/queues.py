"""How many hardware queues of a GPU a process opens.

The driver makes them one by one, for all processes of the host: where many start at once, a context
with the usual eight takes 0.20 s of its time, one with a single queue 0.09 s (an H200, driver 580).
Work in one stream uses one. Who may have several streams gets all queues, and so does everybody in
a verification, in whose time nothing is left to this.
"""

import os
import re

_VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
# cuDNN runs the layers of a recurrent network in streams of its own.
_OVERLAPPING = re.compile("(?i:stream)|RNN|LSTM|GRU")


def may_overlap(source: str) -> bool:
    """Whether a program may have kernels in several streams at once."""
    return _OVERLAPPING.search(source) is not None


def use_one() -> None:
    """In a runner, before it opens the GPU."""
    os.environ[_VARIABLE] = "1"
