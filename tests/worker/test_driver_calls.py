"""Memory of a GPU in two processes, by the calls of either driver, with a simulated driver.

Invariants:
- what one process writes to memory that it has made, another reads where it maps it, and the other
  way round;
- HIP's calls have the signatures, structures and constants of HIP's own header;
- a descriptor is handed over by value, or by address if that is how the release takes it;
- a stream waits for a value that another process writes;
- a refused call is named as the driver names it, with the driver's word for the reason.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.fake_driver import build_driver
from tests.worker.serving import ROOT

BOTH = """
import ctypes, json, os, socket, sys
import torch
torch.version.hip = "7.1" if sys.argv[1] == "hip" else None
torch.cuda.current_device = lambda: 0
torch.cuda.mem_get_info = lambda: (64 << 30, 64 << 30)
from evolve.worker.base import gpu_driver

ours, theirs = socket.socketpair()
other = os.fork()  # before either has the driver: to import torch takes longer than all of this
if other == 0:
    exec(sys.argv[2])
    os._exit(0)
theirs.close()
said = ours.makefile()
"""
MAKER = """
mapping, fd = gpu_driver.allocate(3 << 20)
ctypes.memset(mapping.address, 7, 100)
socket.send_fds(ours, [str(mapping.size).encode()], [fd])
assert said.readline() == "mapped\\n"
ctypes.memset(mapping.address + 4096, 5, 4)  # the value that the other's stream waits for
said = json.loads(said.readline())
assert os.waitpid(other, 0)[1] == 0
found = {**said, "size": mapping.size, "written": ctypes.string_at(mapping.address + 100, 3).hex()}
mapping.close()
mapping.close()  # once is enough
os.close(fd)
try:
    gpu_driver.allocate(2 << 30)
except gpu_driver.DriverError as error:
    found["refused"] = error.strerror
print(json.dumps(found))
"""
USER = """
size, (fd,), _, _ = socket.recv_fds(theirs, 64, 1)
mapping = gpu_driver.attach(fd, int(size))
os.close(fd)
read = ctypes.string_at(mapping.address, 101).hex()
ctypes.memset(mapping.address + 100, 9, 3)
theirs.send(b"mapped\\n")
gpu_driver.wait_value(mapping.address + 4096, 0x05050505)
theirs.send(json.dumps({"read": read, "waited": True}).encode() + b"\\n")
mapping.close()
"""
REFUSED = {
    "cuda": "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY",
    "hip": "hipMemCreate: hipErrorOutOfMemory",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "by_address"),
    [("cuda", False), ("hip", False), ("hip", True)],
    ids=["cuda", "hip by value", "hip by address"],
)
def test_two_processes_share_memory_that_one_has_made(tmp_path: Path, name, by_address):
    build_driver(tmp_path, name, by_address=by_address)
    done = subprocess.run(
        [sys.executable, "-c", BOTH + MAKER, name, USER],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {
        "read": "07" * 100 + "00",
        "waited": True,
        "written": "09" * 3,
        "size": 4 << 20,
        "refused": REFUSED[name],
    }
