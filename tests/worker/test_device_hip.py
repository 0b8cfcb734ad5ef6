"""An AMD GPU as the device, over a driver and a torch that are played.

Invariants:
- what the judge stages is what a runner reads, through memory that both map; a write to it or just
  behind it is seen;
- an output is read from the pool that was lent to its runner, and from nowhere else;
- the next runner finds none of the last one's data;
- a runtime that does not do what the clock needs is named with the call, when the device is opened;
- another vendor's torch is refused in one line with the remedy;
- every verdict and environment says that the device is untested on hardware.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from evolve.core.devices import HIP, device_kind_of
from evolve.core.errors import UsageError
from evolve.worker.base.driver_calls import CUDA_CALLS, HIP_CALLS, driver_calls
from evolve.worker.devices.cuda.device import CudaDevice
from evolve.worker.devices.hip.device import HipDevice
from evolve.worker.judge.outcome import _of_device
from tests.worker.fake_driver import build_driver
from tests.worker.serving import ROOT

OPENED = """
import json, os, socket, subprocess, sys
from tests.worker import rocm_torch
rocm_torch.install(sys.argv[1])
import torch
from evolve.worker.devices.cuda import device as cuda_device
from evolve.worker.devices.hip import device as hip_device
cuda_device._build_triton_driver = lambda cache: None  # asks Triton for a GPU
hip_device._WAIT_S = 0.2
from evolve.core.errors import EvaluatorUnavailable
try:
    device = hip_device.HipDevice()
except EvaluatorUnavailable as error:
    print(json.dumps({"refused": str(error)}))
    sys.exit()
"""
JUDGE = (
    OPENED
    + """
from evolve.core.devices import HIP
from evolve.testing.devices import DeviceConformance
from evolve.worker.session.provenance import environment
from tests.worker.serving import ROOT


class Process:
    # A runner, as far as memory goes: asked over a socket, in a process of its own.
    pid, has_ended = 0, True

    def __init__(self):
        self.socket, theirs = socket.socketpair()
        words = [sys.executable, "-c", sys.argv[2], sys.argv[1], str(theirs.fileno())]
        self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
        theirs.close()
        self.closing = lambda: None

    def ask(self, *words, fd=None):
        message = json.dumps(words).encode()
        socket.send_fds(self.socket, [message], [] if fd is None else [fd])
        return json.loads(self.socket.recv(1 << 16))

    def use_pool(self, fd, size, limit, library, seconds):
        return self.ask("use_pool", size, limit, library, fd=fd)

    def use_signals(self, fd, spin_s, seconds):
        pass

    def use_inputs(self, fd, size, seconds):
        self.ask("use_inputs", size, fd=fd)

    def on_close(self, call):
        self.closing = call

    def end(self):
        self.socket.close()
        self.process.wait()
        self.closing()


device.pool_bytes = 16 << 20
found, runner = {}, Process()
suite = DeviceConformance()
suite.kind = HIP
of_device = [name for name, test in vars(DeviceConformance).items()
             if name.startswith("test_") and "device" in test.__annotations__]
for name in of_device:
    getattr(suite, name)(device)
found["conformance"] = len(of_device)
device.connect(runner)
values = torch.arange(1000, dtype=torch.float32)
buffer = device.make_buffer([[values.clone()]])
with device.share(runner, buffer) as shared:
    read = bytes.fromhex(runner.ask("read", 4000))
    found["reads"] = bool((torch.frombuffer(bytearray(read), dtype=torch.float32) == values).all())
    found["unchanged"] = not device.inputs_changed(runner, shared, 0)
    runner.ask("write", 40)
    found["changed"] = device.inputs_changed(runner, shared, 0)
    device.inputs_of(runner, buffer.size).copy_(buffer.memory)
    runner.ask("write", buffer.size)
    found["behind"] = device.inputs_changed(runner, shared, 0)
address = runner.ask("output", 123)
ours = torch.empty(256, dtype=torch.uint8)
device.read(runner, [address], [ours])
found["output"] = bool((ours == 123).all())
refused = 0
for place in (address - 4096 - 1, address + (1 << 40), 0):
    try:
        device.read(runner, [place], [ours])
    except OSError:
        refused += 1
found["refused_places"] = refused
runner.end()
runner = Process()
device.connect(runner)
found["left"] = runner.ask("pool", 4096, 256) == "7b" * 256
runner.end()
device.require_health()
found["idle"] = device.is_idle()
found["others"] = sorted(device._processes().items())
found["describe"] = device.describe()
found["environment"] = environment(device, "none", "fp32", "ieee", "interleaved")
found["class"], found["capability"] = device.device_class, device.capability
found["flush"], found["nodes"] = device._flush.numel(), device.nodes
found["variables"] = device.variables
device.close()
print(json.dumps(found))
"""
)
RUNNER = """
import ctypes, json, os, socket, sys
from tests.worker import rocm_torch
rocm_torch.install(sys.argv[1])
import torch
from evolve.worker.runner import memory_cuda
memory_cuda.importlib.import_module = lambda name: (_ for _ in ()).throw(ImportError)
access, channel = memory_cuda.CudaAccess(False), socket.socket(fileno=int(sys.argv[2]))
base = 0
while True:
    message, fds, _, _ = socket.recv_fds(channel, 1 << 16, 1)
    if not message:
        break
    word, *rest = json.loads(message)
    answer = None
    if word == "use_pool":
        answer = base = access.use_pool(fds[0], *rest)
    elif word == "use_inputs":
        access.use_inputs(fds[0], *rest)
    elif word == "read":
        answer = bytes(access.inputs[: rest[0]].tolist()).hex()
    elif word == "write":
        access.inputs[rest[0]] ^= 1
    elif word == "output":
        answer = base + 4096
        ctypes.memset(answer, rest[0], 256)
    elif word == "pool":
        answer = ctypes.string_at(base + rest[0], rest[1]).hex()
    for fd in fds:
        os.close(fd)
    channel.send(json.dumps(answer).encode())
"""


def played(folder: Path, program: str, **driver: str) -> dict:
    library = build_driver(folder, "hip", **driver)
    done = subprocess.run(
        [sys.executable, "-c", program, str(library), RUNNER],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HIP_VISIBLE_DEVICES": "3"},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return played(tmp_path_factory.mktemp("driver"), JUDGE, waits="queued")


def test_inputs_reach_a_runner_through_memory_that_both_map(judged):
    assert judged["reads"]
    assert judged["unchanged"]


def test_a_write_to_inputs_or_just_behind_them_is_seen(judged):
    assert judged["changed"]
    assert judged["behind"]


def test_an_output_is_read_from_the_runners_pool_and_from_nowhere_else(judged):
    assert judged["output"]
    assert judged["refused_places"] == 3


def test_a_runner_finds_nothing_of_the_last_one(judged):
    assert not judged["left"]


def test_the_devices_facts_are_those_of_the_gpu(judged):
    facts = judged["describe"]
    assert facts["architecture"] == "gfx942"
    assert facts["warp_size"] == "64"
    assert facts["hip"] == "7.1.0"
    assert facts["driver"] == "6.14 of 0000:C1:00.0"
    assert "capability" not in facts
    assert judged["capability"] == 0
    assert judged["class"] == "hip: AMD Instinct MI300X"
    assert device_kind_of(judged["class"]) is HIP
    assert judged["flush"] == 2 * (256 << 20)  # past the cache behind the L2
    assert judged["others"] == [[1, 7 << 30]]
    assert judged["idle"]


def test_runners_see_the_gpu_that_the_judge_sees_and_compile_for_it(judged):
    variables = judged["variables"]
    assert variables["HIP_VISIBLE_DEVICES"] == "3"
    assert variables["TVM_FFI_ROCM_ARCH_LIST"] == variables["PYTORCH_ROCM_ARCH"] == "gfx942"


def test_it_conforms(judged):
    assert judged["conformance"] >= 6


def test_verdicts_say_that_the_device_is_untested(judged):
    (label,) = _of_device(SimpleNamespace(kind=HIP))
    assert (label.name, label.evidence) == (
        "untested_device",
        "device=hip is untested on hardware",
    )


@pytest.mark.parametrize("waits", ["refused", "lost"])
def test_a_runtime_that_cannot_wait_is_named_with_the_call(tmp_path, waits):
    refused = played(tmp_path, OPENED, waits=waits)["refused"]
    assert "hipStreamWaitValue32" in refused
    assert "gfx942" in refused
    assert "evolve doctor --device hip --report" in refused
    assert "\n" not in refused
    assert ("still waits" in refused) is (waits == "lost")


TORCHES = {
    "a torch for the CPU": (HipDevice, "2.13.0+cpu", None, None, "Install a ROCm build of torch"),
    "a torch for CUDA": (HipDevice, "2.13.0+cu130", "13.0", None, "use device=cuda"),
    "MetaX's torch": (HipDevice, "2.8.0+metax3.5.3.9", "11.6", None, "built for MetaX MACA"),
    "ROCm's torch": (CudaDevice, "2.13.0+rocm7.1", None, "7.1", "use device=hip"),
    "MetaX's torch, which looks like CUDA": (
        CudaDevice, "2.8.0+metax3.5.3.9", "11.6", None, "Install a CUDA build of torch",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("opened", "version", "cuda", "hip", "remedy"), TORCHES.values(), ids=TORCHES
)
def test_another_vendors_torch_is_refused_in_a_line(
    monkeypatch, opened, version, cuda, hip, remedy
):
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cuda or hip))
    with pytest.raises(UsageError) as caught:
        opened()
    assert remedy in str(caught.value)
    assert version in str(caught.value)
    assert str(caught.value).startswith(f"device={opened.platform}: ")
    assert "\n" not in str(caught.value)


def test_the_driver_is_that_of_the_torch(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.1")
    assert driver_calls() is HIP_CALLS
    monkeypatch.setattr(torch.version, "hip", None)
    assert driver_calls() is CUDA_CALLS
