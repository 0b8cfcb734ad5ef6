"""What of a GPU can be told without one.

Invariants:
- a GPU is not taken for broken because it is full, and is where it gives no answer;
- who else works there is told of processes that are there, and are none of ours.
"""

import subprocess
import threading

import pytest
import torch

from evolve.core.errors import EvaluatorUnavailable
from evolve.worker.devices.cuda import nvml
from evolve.worker.devices.cuda.device import CudaDevice


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


def test_a_thread_that_has_the_number_of_a_process_elsewhere_is_nobody(monkeypatch):
    """The driver counts in a namespace of its own, and numbers of threads have a folder too."""
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    with subprocess.Popen(["sleep", "60"]) as ours:
        known = {1, ours.pid, thread.native_id, 1 << 22}
        monkeypatch.setattr(nvml, "processes", lambda uuid: dict.fromkeys(known, 0))
        try:
            assert Gpu().others() == {1}
        finally:
            ends.set()
            ours.kill()
