"""`python -m MODULE WORDS`, forked from a process that has imported torch.

To import torch takes a processor longer than all that the script of a test does. The forked process
is one of its own with the pipes, environment and exit status that `subprocess` would give it, and
runs the same module from the top.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.forked import ROOT

PIPE = subprocess.PIPE
_LARGEST = 1 << 20  # bytes of a request
_FILES = 4  # standard input, output and error; where the exit status is written


class Popen:
    """What tests use of `subprocess.Popen`, for a command `python -m MODULE WORDS`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        stderr: IO[str] | None = None,
        **pipes: Any,
    ) -> None:
        assert pipes == {"stdin": PIPE, "stdout": PIPE, "text": True}
        stdin, own_stdin = os.pipe()
        own_stdout, stdout = os.pipe()
        self._status, status = os.pipe()
        _, _, *words = command
        request = json.dumps([words, str(cwd or Path.cwd()), dict(env)]).encode()
        error = 2 if stderr is None else stderr.fileno()
        socket.send_fds(_server(), [request], [stdin, stdout, error, status])
        for fd in (stdin, stdout, status):
            os.close(fd)
        self.returncode = -signal.SIGKILL
        self.stdin, self.stdout = os.fdopen(own_stdin, "w"), os.fdopen(own_stdout)

    def wait(self) -> int:
        with contextlib.suppress(OSError), open(self._status, closefd=False) as file:
            if said := file.read():  # once
                self.returncode = int(said)
        return self.returncode

    def __enter__(self) -> "Popen":
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.wait()
        os.close(self._status)


def run(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Wait for it, as `subprocess.run` does that captures text; `given`: its standard input."""
    pipes = {"stdin": PIPE, "stdout": PIPE, "text": True}
    with (
        tempfile.TemporaryFile("w+") as said,
        Popen(command, env=env, cwd=cwd, stderr=said, **pipes) as process,
    ):
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(given)
            process.stdin.close()
        out = process.stdout.read()
        status = process.wait()
        said.seek(0)
        return subprocess.CompletedProcess(command, status, out, said.read())


@cache
def _server() -> socket.socket:
    """The socket of the process to fork from, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, "-m", "tests.forked_torch", str(theirs.fileno())]
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


def _become(words: list[str], cwd: str, env: dict[str, str], standard: list[int]) -> None:
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.path[0] = words, cwd
    status: object = 1
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code
    finally:
        if error := sys.exception():
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
