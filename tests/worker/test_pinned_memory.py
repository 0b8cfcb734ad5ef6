"""Where outputs wait that a GPU has no room for.

Invariants:
- no more of the host's memory is taken than a limit on our share of it leaves;
- it is locked once for outputs of the same sizes, and given back for others;
- where the host has none to spare, the device's is used.
"""

from pathlib import Path

import pytest
import torch

from evolve.worker.base.faults import CANDIDATE, EAGER
from evolve.worker.base.infra import InfraFault
from evolve.worker.devices import output_snapshot
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.devices.cuda import pinned_memory as pagelocked
from evolve.worker.devices.cuda.pinned_memory import PageLocked
from evolve.worker.devices.window import TimedCase
from evolve.worker.ipc.messages import TensorAt
from evolve.worker.sandbox import procfs
from evolve.worker.timing.interleaved_blocks import with_pages

HOST = {"MemTotal": 1000, "MemAvailable": 700}
LAYOUT = (TensorAt(torch.float32, (4, 6), (6, 1), 0),)
STAT = "anon 150\ninactive_file 100\nactive_file 50"


@pytest.mark.parametrize(
    ("files", "total", "free"),
    [
        ({}, 1000, 700),
        ({"memory.max": "max", "memory.current": "300", "memory.stat": STAT}, 1000, 700),
        ({"memory.max": "500", "memory.current": "300", "memory.stat": STAT}, 500, 300),
        ({"memory.max": "500", "memory.current": "300", "memory.stat": "anon 150"}, 1000, 700),
        ({"memory.max": "5000", "memory.current": "300", "memory.stat": STAT}, 1000, 700),
    ],
)
def test_what_is_free_is_what_a_limit_leaves(tmp_path, files, total, free):
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert pagelocked.memory(HOST, tmp_path) == (total, free)


def test_the_kernel_says_how_much_there_is():
    total, free = pagelocked.memory(procfs.meminfo(), tmp := pagelocked._GROUP)
    assert 0 < free < total, tmp


class Host:
    """One whose pages torch locks, with 700 bytes of 1000 free; it keeps what it is given back."""

    def __init__(self, monkeypatch, most=700):
        self.locked, self.most = [], most
        monkeypatch.setattr(pagelocked, "buffer", self.buffer)
        monkeypatch.setattr(pagelocked, "_let_go", self.locked.clear)
        monkeypatch.setattr(pagelocked, "_GROUP", Path("/nonexistent"))
        monkeypatch.setattr(procfs, "meminfo", self.meminfo)

    def buffer(self, size):
        if size > self.most:
            raise RuntimeError("CUDA error: out of memory")
        self.locked.append(size)
        return torch.empty(0)

    def meminfo(self):
        return {"MemTotal": 1000, "MemAvailable": 700 - sum(self.locked)}


def test_what_is_reserved_is_not_locked_again_and_other_sizes_take_its_place(monkeypatch):
    host, pages = Host(monkeypatch), PageLocked()
    assert pages.reserve([100, 100, 100])  # 128 each, as torch rounds: of 450 to spare
    assert pages.reserve([100, 90])
    assert host.locked == [100, 100, 100]
    assert pages.reserve([200])
    assert host.locked == [200]


def test_a_quarter_of_the_host_stays_free(monkeypatch):
    host, pages = Host(monkeypatch), PageLocked()
    assert pages.reserve([256])
    assert not pages.reserve([256, 256])
    assert host.locked == []
    assert pages.reserve([256])


def test_what_the_driver_refuses_is_not_asked_for_again(monkeypatch):
    host, pages = Host(monkeypatch, most=0), PageLocked()
    assert not pages.reserve([100])
    host.most = 700
    assert not pages.reserve([100])
    assert host.locked == []


@pytest.mark.skipif("torch.cuda.is_available()", reason="needs a host without a GPU")
def test_what_was_not_reserved_is_our_fault_where_it_cannot_be_locked():
    with pytest.raises(InfraFault, match="locks no more pages"):
        output_snapshot.buffers_for(CpuDevice(), LAYOUT, on_host=True)


def test_nothing_can_be_locked_without_a_gpu():
    assert torch.cuda.is_available() or not PageLocked().reserve([1 << 10])


def test_outputs_wait_on_the_device_where_the_host_has_no_room():
    (case,) = [TimedCase(warm=None, calls=1, layouts={CANDIDATE: LAYOUT, EAGER: LAYOUT},
                         blocks=2, on_host=True)]  # fmt: skip
    (planned,) = with_pages(CpuDevice(), [case], [CANDIDATE, EAGER], 1)
    assert not planned.on_host
