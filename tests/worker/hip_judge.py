"""A judge's `HipDevice` over a simulated driver: `python -m tests.worker.hip_judge LIBRARY FOLDER`.

The folder stands for the kernel's: `nodes` lists GPUs, `dri` has their render nodes. It prints a
line of JSON: findings about the device and the memory that it shares with `hip_runner`, or
`refused`, why it does not open.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch

from evolve.core.devices import HIP
from evolve.core.errors import EvaluatorUnavailable
from evolve.testing.devices import DeviceConformance
from evolve.worker.devices.cuda import device as cuda_device
from evolve.worker.devices.hip import device as hip_device
from evolve.worker.devices.hip import topology
from evolve.worker.devices.hip.device import HipDevice
from evolve.worker.processes.runner_process import RunnerProcess
from tests.worker import hip_runner, rocm_torch


class Process:
    """A runner, as far as memory goes: asked over a socket, in a process of its own.

    It is forked, before the judge has a driver, from one that has imported torch.
    """

    pid, has_ended = 0, True

    def __init__(self, library: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._child = os.fork()
        if self._child == 0:
            self._socket.close()
            hip_runner.run(library, theirs)
        theirs.close()
        self._closing: Callable[[], object] = lambda: None

    def ask(self, *words: Any, fd: int | None = None) -> Any:
        message = json.dumps(words).encode()
        socket.send_fds(self._socket, [message], [] if fd is None else [fd])
        return json.loads(self._socket.recv(1 << 16))

    def use_pool(self, fd: int, size: int, limit: int, library: str, seconds: float) -> Any:
        return self.ask("use_pool", size, limit, library, fd=fd)

    def use_signals(self, fd: int, spin_s: float, seconds: float) -> None:
        pass

    def use_inputs(self, fd: int, size: int, seconds: float) -> Any:
        return self.ask("use_inputs", size, fd=fd)

    def on_close(self, call: Callable[[], object]) -> None:
        self._closing = call

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # the next runner has a copy of it
        assert os.waitpid(self._child, 0)[1] == 0
        self._closing()


def conformance(device: HipDevice) -> list[str]:
    """Names of the tests of an open device, all of which passed."""
    suite = DeviceConformance()
    suite.kind = HIP
    names = [
        name
        for name, test in vars(DeviceConformance).items()
        if name.startswith("test_") and "device" in test.__annotations__
    ]
    for name in names:
        getattr(suite, name)(device)
    return names


def inputs(device: HipDevice, process: Process) -> dict[str, bool]:
    """Inputs that a runner reads, and its writes to them."""
    runner = cast(RunnerProcess, process)
    values = torch.arange(1000, dtype=torch.float32)
    buffer = device.make_buffer([[values.clone()]])
    with device.share(runner, buffer) as shared:
        read = torch.frombuffer(bytearray.fromhex(process.ask("read", 4000)), dtype=torch.float32)
        found = {"reads": bool((read == values).all())}
        found["as_an_output"] = in_inputs(device, runner, buffer.size)
        found["unchanged"] = not device.inputs_changed(runner, shared, 0)
        process.ask("write", 40)
        found["changed"] = device.inputs_changed(runner, shared, 0)
        device.inputs_of(runner, buffer.size).copy_(buffer.memory)
        process.ask("write", buffer.size)
        found["behind"] = device.inputs_changed(runner, shared, 0)
    return found


def in_inputs(device: HipDevice, runner: RunnerProcess, size: int) -> bool:
    """Whether an output is read from the inputs exactly if it may lie there, and ends there."""
    lent, ours = device.lent_to(runner), torch.empty(size, dtype=torch.uint8)
    assert lent.inputs is not None
    device.read(runner, [lent.claimed], [ours], [0])
    for at, aliased in ((lent.claimed, ()), (lent.claimed + lent.inputs.size - 1, (0,))):
        try:
            device.read(runner, [at], [ours], aliased)
        except OSError:
            continue
        return False
    return bool((ours == device.inputs_of(runner, size)).all())


def outputs(device: HipDevice, process: Process) -> dict[str, Any]:
    """An output in the runner's pool, and addresses outside of it."""
    runner = cast(RunnerProcess, process)
    address = process.ask("output", 123)
    ours = torch.empty(256, dtype=torch.uint8)
    device.read(runner, [address], [ours])
    found = {"output": bool((ours == 123).all()), "refused_places": 0}
    for place in (address - 4096 - 1, address + (1 << 40), 0):
        try:
            device.read(runner, [place], [ours])
        except OSError:
            found["refused_places"] += 1
    return found


def facts(device: HipDevice) -> dict[str, Any]:
    return {
        "others": sorted(device._processes().items()),
        "describe": device.describe(),
        "class": device.device_class,
        "capability": device.capability,
        "flush": device._flush.numel(),
        "variables": device.variables,
        "nodes": device.nodes,
        "other_nodes": device.other_nodes,
    }


def findings(runners: Sequence[Process]) -> dict[str, Any]:
    try:
        device = HipDevice()
    except EvaluatorUnavailable as error:
        return {"refused": str(error)}
    device.pool_bytes = 16 << 20
    found: dict[str, Any] = {"conformance": conformance(device)}
    runner, following = runners
    device.connect(cast(RunnerProcess, runner))
    found |= inputs(device, runner) | outputs(device, runner)
    runner.end()
    device.connect(cast(RunnerProcess, following))
    found["left"] = following.ask("pool", 4096, 256) == "7b" * 256
    following.end()
    device.require_health()
    found["idle"] = device.is_idle()
    found |= facts(device)
    device.close()
    return found


if __name__ == "__main__":
    runners = [Process(sys.argv[1]) for _ in range(2)]
    rocm_torch.install(sys.argv[1])
    folder = Path(sys.argv[2])
    with (
        mock.patch.object(cuda_device, "_build_triton_driver"),  # asks Triton for a GPU
        mock.patch.object(hip_device, "_WAIT_S", 0.2),
        mock.patch.multiple(topology, NODES=folder / "nodes", RENDER_NODES=folder / "dri"),
    ):
        print(json.dumps(findings(runners)))
