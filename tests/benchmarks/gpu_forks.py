"""Processes forked from one that has imported everything, and whose turn on the device it is.

A process that has asked CUDA anything cannot be forked. So the parent never does, and this is
imported before those modules of torch that ask when they are imported.
"""

import fcntl
import logging
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # of a driver that is not initialised by it

import torch
from triton.errors import TritonError
from triton.runtime.jit import JITFunction

from evolve.worker.build import inductor as compiler
from evolve.worker.sandbox import syscalls

FAULTS = (
    TritonError,
    RuntimeError,
    AssertionError,
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)
"""What a program may raise that does not compile or does not run."""


class Compiling:
    """Kernels are compiled and not launched."""

    def __enter__(self) -> None:
        self._run = run = JITFunction.run
        JITFunction.run = lambda *given, **named: run(*given, **named | {"warmup": True})

    def __exit__(self, *_: object) -> None:
        JITFunction.run = self._run


class Turns:
    """Of processes on a device: one alone, or several together. They do not nest.

    A process that dies gives up its turn.

    Args:
        path: of a file to lock, which says who is alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For what is timed."""
        with self._locked(fcntl.LOCK_EX) as file:
            os.pwrite(file, f"{os.getpid()} {time.monotonic():.3f}\n".encode(), 0)
            try:
                yield
                finish()
            finally:
                os.ftruncate(file, 0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """For what works on the device and must not be in the way of what is timed."""
        with self._locked(fcntl.LOCK_SH):
            yield
            finish()

    @contextmanager
    def _locked(self, kind: int) -> Iterator[int]:
        file = os.open(self._path, os.O_RDWR)
        try:
            fcntl.flock(file, kind)
            yield file
        finally:
            os.close(file)

    def longest(self) -> tuple[int, float]:
        """The process that is alone, and for how many seconds; (0, 0.0) where none is."""
        words = self._path.read_text().split()
        if len(words) < 2:
            return 0, 0.0
        return int(words[0]), time.monotonic() - float(words[1])


def finish() -> None:
    """Wait for the device, where there is one and this process has used it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def is_lost() -> bool:
    """Whether a kernel has taken the device from this process, which hears of it from then on."""
    try:
        finish()
    except RuntimeError:
        return True
    return False


def prepare() -> None:
    """Import torch's compiler, which shall not have a pool of processes: none survives a fork."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    compiler.prepare()
    torch._inductor.config.compile_threads = 1  # where it was imported before


def hush() -> None:
    """Warnings of libraries are not wanted, here and in children."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


def fork(log: Path, work: Callable[..., None], *given: object) -> BaseProcess:
    """A child that works on this, in a session of its own, and dies with its parent.

    What it says to stderr, such as a compiler's view of a kernel, is added to `log`.
    """
    process = get_context("fork").Process(target=_begin, args=(log, work, *given), daemon=True)
    process.start()
    return process


def _begin(log: Path, work: Callable[..., None], *given: object) -> None:
    os.setsid()
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    work(*given)


def kill(*processes: BaseProcess, seconds: float = 3.0) -> None:
    """Children of `fork`, with the compilers that they called; wait so long for their ends."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    until = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))


@contextmanager
def until_stopped() -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is within, and are ignored from then on."""

    def stop(number: int, _: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    try:
        yield
    except KeyboardInterrupt as stopped:
        print(f"stopped by {stopped}", flush=True)
