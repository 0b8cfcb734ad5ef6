"""How many hardware queues of a GPU a process opens.

The driver makes them one by one, for all processes of the host: if many start at once, a context
with the usual eight takes 0.20 s of its time, one with a single queue 0.09 s (an H200, driver 580).
Work in one stream uses one. All sides of a comparison have as many: if one of them may have several
streams, all queues.
"""

import contextlib
import os
import re
from collections.abc import Iterator

_VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
# Libraries with streams of their own are found by name: cuDNN's recurrent layers, linear algebra.
_OVERLAPPING = re.compile(
    r"stream|graph|rnn|lstm|\bgru|jit\.fork"
    r"|linalg|svd|\bqr\b|(?<![a-z])eig|cholesky|inverse|lstsq|solve|\bdet\b|logdet",
    re.IGNORECASE,
)


def may_overlap(source: str) -> bool:
    """Whether a program may have kernels in several streams at once."""
    return _OVERLAPPING.search(source) is not None


@contextlib.contextmanager
def opening(all_queues: bool) -> Iterator[None]:
    """In a runner, while it opens the GPU; nothing of it shows afterwards."""
    if not all_queues:
        os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
