"""What of a GPU can be told without one.

Invariants:
- a GPU is not taken for broken because it is full, and is where it gives no answer.
"""

import pytest
import torch

from evolve.core.errors import EvaluatorUnavailable
from evolve.worker.device_cuda import CudaDevice


class Probe:
    """A tensor on a GPU in such a state."""

    def __init__(self, error: RuntimeError) -> None:
        self._error = error

    def sum(self):
        raise self._error


class Gpu(CudaDevice):
    """One that has been opened, as far as these tests go."""

    def __init__(self, probe: Probe | None = None) -> None:
        self._probe, self._answer = probe, 0
        self._facts = type("Facts", (), {"name": "GPU", "uuid": "1"})


def test_a_gpu_that_is_full_is_not_taken_for_broken():
    Gpu(Probe(torch.OutOfMemoryError("CUDA out of memory."))).require_health()
    with pytest.raises(EvaluatorUnavailable, match="illegal"):
        Gpu(Probe(RuntimeError("an illegal memory access"))).require_health()
