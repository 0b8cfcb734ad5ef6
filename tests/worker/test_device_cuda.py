"""What of a GPU can be told without one.

Invariants:
- a GPU is not taken for broken because it is full, and is where it gives no answer;
- other users of a GPU are its processes that this judge did not start;
- a write to inputs is seen, also one just behind them, however large they are.
"""

import subprocess
import threading
from types import SimpleNamespace

import pytest
import torch

from evolve.core.errors import EvaluatorUnavailable
from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.devices.cuda import nvml
from evolve.worker.devices.cuda.device import CudaDevice
from evolve.worker.devices.cuda.lent import Lent
from evolve.worker.ipc.tensor_buffer import GUARD_BYTES, buffer_of


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


@pytest.mark.parametrize("lone_bytes", [1, 1 << 30], ids=["a lone tensor", "packed"])
@pytest.mark.parametrize("at", [0, -1, "behind", "last of the guard"])
def test_a_write_to_inputs_or_just_behind_them_is_seen(monkeypatch, lone_bytes, at):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    arena = SimpleNamespace(memory=torch.zeros(1 << 15, dtype=torch.uint8), size=1 << 15)
    device, runner = Gpu(), object()
    device._lent = {runner: Lent(arena, 0, None, inputs=arena)}
    buffer = buffer_of(
        [[torch.ones(1024)]], lambda size: torch.empty(size, dtype=torch.uint8), lone_bytes
    )
    with device.share(runner, buffer) as shared:
        assert not device.inputs_changed(runner, shared, 0)
        assert device.inputs_now(runner, shared, 0).equal(buffer.memory)
        last = {"behind": buffer.size, "last of the guard": buffer.size + GUARD_BYTES - 1}
        place = last.get(at, at if at == 0 else buffer.size - 1)
        arena.memory[place] ^= 1
        assert device.inputs_changed(runner, shared, 0)
        if place >= buffer.size:
            with pytest.raises(CandidateFault) as raised:
                device.inputs_now(runner, shared, 0)
            assert raised.value.status is Status.MUTATED_INPUT
