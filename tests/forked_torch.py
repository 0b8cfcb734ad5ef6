"""The process of `evolve.capture.processes`, forked from one that has imported torch.

Each test starts one or more of them, and importing torch takes a processor longer than all that
the script of a test does. The forked process is one of its own with the pipes, environment and exit
status that `subprocess` would give it, and runs the same module from the top.
"""

import contextlib
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tests.forked import ROOT

PIPE = subprocess.PIPE
_LARGEST = 1 << 20  # bytes of a request
_FILES = 4  # standard input, output and error; where the exit status is written


class Popen:
    """What the capture uses of `subprocess.Popen`, for `python -m MODULE`."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **pipes: Any) -> None:
        assert pipes == {"stdin": PIPE, "stdout": PIPE, "text": True}
        stdin, own_stdin = os.pipe()
        own_stdout, stdout = os.pipe()
        self._status, status = os.pipe()
        _, _, module = command
        request = json.dumps([module, os.getcwd(), dict(env)]).encode()  # noqa: PTH109
        socket.send_fds(_server(), [request], [stdin, stdout, 2, status])
        for fd in (stdin, stdout, status):
            os.close(fd)
        self.stdin, self.stdout = os.fdopen(own_stdin, "w"), os.fdopen(own_stdout)

    def wait(self) -> int:
        with contextlib.suppress(OSError), open(self._status, closefd=False) as file:
            self.returncode = int(file.read() or "-9")
        return self.returncode

    def __enter__(self) -> "Popen":
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.wait()
        os.close(self._status)


@cache
def _server() -> socket.socket:
    """The socket of the process to fork from, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, "-m", "tests.capture.forking", str(theirs.fileno())]
        subprocess.Popen(words, pass_fds=[theirs.fileno()], cwd=ROOT)
    return ours


def _serve(requests: socket.socket) -> None:
    import evolve.capture.job  # noqa: F401  (imports torch)

    while True:
        text, fds, _, _ = socket.recv_fds(requests, _LARGEST, _FILES)
        if not text:
            return
        waiter = os.fork()
        if waiter == 0 and os.fork() == 0:
            requests.close()
            _wait_for(text, fds)
        for fd in fds:
            os.close(fd)
        if waiter == 0:
            os._exit(0)
        os.waitpid(waiter, 0)


def _wait_for(text: bytes, fds: list[int]) -> None:
    """Run it in a child, and write its exit status."""
    *standard, status = fds
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(*json.loads(text), standard)
    for fd in standard:
        os.close(fd)
    _, ended = os.waitpid(pid, 0)
    os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
    os._exit(0)


def _become(module: str, cwd: str, env: dict[str, str], standard: list[int]) -> None:
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.path[0] = [module], cwd
    status: object = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    finally:
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
