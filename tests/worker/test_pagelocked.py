"""Where outputs wait that a GPU has no room for.

Invariants:
- no more of the host's memory is taken than a limit on our share of it leaves;
- where the host has none to spare, the device's is used.
"""

import pytest
import torch

from evolve.worker import custody, pagelocked, procfs
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.wire import TensorAt

HOST = {"MemTotal": 1000, "MemAvailable": 700}
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


def test_more_than_the_host_has_is_not_locked():
    assert pagelocked.page_locked(1 << 50) is None


def test_outputs_that_find_no_room_on_the_host_wait_on_the_device(monkeypatch):
    monkeypatch.setattr(custody, "page_locked", lambda size: None)
    layout = (TensorAt(torch.float32, (4, 6), (6, 1), 0),)
    (raw,) = custody.buffers_for(CpuDevice(), layout, on_host=True)
    assert raw.numel() == 4 * 6 * 4
    assert not raw.any()
