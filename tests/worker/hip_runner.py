"""A runner of `hip_judge`, as far as memory goes, in a process that `run` ends.

Over its socket come the calls of `evolve.worker.runner.memory_cuda`, and words that read and write
memory.
"""

import ctypes
import importlib
import json
import os
import socket
from typing import Any, NoReturn
from unittest import mock

from evolve.worker.runner import memory_cuda
from tests.worker import rocm_torch


class Memory:
    """The runner's side of the memory that it shares with its judge."""

    def __init__(self) -> None:
        self._access = memory_cuda.CudaAccess(False)
        self._base = 0

    def answer(self, word: str, rest: list[Any], fds: list[int]) -> Any:
        match word, rest:
            case "use_pool", [size, limit, library]:
                self._base = self._access.use_pool(fds[0], size, limit, library)
                return self._base
            case "use_inputs", [size]:
                return self._access.use_inputs(fds[0], size)
            case "read", [size]:
                return bytes(self._access.inputs[:size].tolist()).hex()
            case "write", [at]:
                self._access.inputs[at] ^= 1
            case "output", [value]:
                ctypes.memset(self._base + 4096, value, 256)
                return self._base + 4096
            case "pool", [start, size]:
                return ctypes.string_at(self._base + start, size).hex()
        return None


def serve(channel: socket.socket) -> None:
    memory = Memory()
    while True:
        message, fds, _, _ = socket.recv_fds(channel, 1 << 16, 1)
        if not message:
            return
        word, *rest = json.loads(message)
        channel.send(json.dumps(memory.answer(word, rest, fds)).encode())
        for fd in fds:
            os.close(fd)


def run(library: str, channel: socket.socket) -> NoReturn:
    """Serve over a channel, with a simulated driver, and end."""
    status = 1
    try:
        rocm_torch.install(library)
        with mock.patch.object(importlib, "import_module", side_effect=ImportError):  # of compilers
            serve(channel)
        status = 0
    finally:
        os._exit(status)
