"""The zygote: one interpreter with the heavy libraries imported, from which runners are forked.

It imports and forks and does nothing else. A parallel torch operation here would start OpenMP
threads, which do not survive a fork, and every child would hang in its first one; so it must have
exactly one thread, and refuses to fork otherwise.
"""

import contextlib
import gc
import importlib
import importlib.util
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from evolve.languages.registry import preloaded
from evolve.worker.base.interpreter import COMPILER, Started, environment, start
from evolve.worker.ipc import messages
from evolve.worker.sandbox.policy import Confinement
from evolve.worker.sandbox.supervisor import guard

_IMPORT_S = 120.0  # importing torch and triton from a cold disk


class Zygote:
    """The judge's handle of a zygote process; threads that fork wait for each other.

    Args:
        variables: of its environment beside the few that are passed on.
        capability: of the GPU that runners will use, 90 for 9.0; 0 if there is none.
        ahead: one that imports already, and had only some of the variables when it began.

    Raises:
        OSError: from every method, if the zygote has died.
    """

    def __init__(
        self, variables: dict[str, str], capability: int = 0, ahead: Started | None = None
    ) -> None:
        self._started = ahead or start(variables)
        self._process, self._socket, _ = self._started
        self._socket.settimeout(_IMPORT_S)
        self._lock = threading.Lock()
        try:
            messages.send_command(self._socket, ("begin", environment(variables), capability))
        except messages.ChannelClosed as error:
            self.close()
            raise ConnectionError("the zygote has died while it imported") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def threads(self) -> int:
        """How many threads the zygote has, as the system counts them."""
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def fork(self, confinement: Confinement) -> tuple[socket.socket, socket.socket]:
        """Start a runner; gives the channel to the runner and the one to its guard.

        One that is still importing is waited for.
        """
        channel, runner_end = socket.socketpair()
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # for the runner's first word
        control, guard_end = socket.socketpair()
        cause: Exception | None
        with runner_end, guard_end:
            fds = (runner_end.fileno(), guard_end.fileno())
            try:
                with self._lock:
                    messages.send_command(self._socket, ("fork", confinement), fds)
                    (answer,), _ = messages.receive_command(self._socket)
                cause = None
            except (messages.ChannelClosed, messages.DeadlineExceeded, EOFError, OSError) as error:
                answer, cause = "the zygote has died or hangs", error
        if answer != "forked":
            channel.close()
            control.close()
            raise ConnectionError(answer) from cause
        return channel, control

    def close(self) -> None:
        self._started.kill()  # which ends the wait of one that forks
        with self._lock:
            self._started.close()


def serve(fd: int) -> None:
    """Main loop of the zygote process."""
    control = socket.socket(fileno=fd)
    run = _import_everything()
    try:
        (_, variables, capability), _ = messages.receive_command(control)
    except EOFError:
        os._exit(0)
    os.environ.update(variables)  # of one that was started ahead
    if capability:
        _have_triton_know_itself(capability)
        with contextlib.suppress(ImportError):  # 0.1 s of each process's first launch
            importlib.import_module("triton.experimental.gluon")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards report for themselves
    gc.collect()
    gc.freeze()
    while True:
        try:
            (_, confinement), (channel_fd, guard_fd) = messages.receive_command(control)
        except EOFError:
            os._exit(0)
        threads = os.listdir("/proc/self/task")  # noqa: PTH208 (cheap, before every fork)
        if len(threads) != 1:
            names = ", ".join(sorted(map(_name_of_thread, threads)))
            messages.send_command(control, (f"the zygote has threads and cannot fork: {names}",))
            return
        if os.fork() == 0:
            control.close()
            channel, judge = socket.socket(fileno=channel_fd), socket.socket(fileno=guard_fd)
            guard(judge, channel, confinement, run)
            os._exit(0)
        os.close(channel_fd)
        os.close(guard_fd)
        messages.send_command(control, ("forked",))


def _name_of_thread(number: str) -> str:
    try:
        return Path(f"/proc/self/task/{number}/comm").read_text().strip()
    except OSError:
        return "one that has ended"


def _import_everything() -> Callable[..., None]:
    """Import the runners' modules; that alone starts no thread and no device context."""
    for name in ("torch", "numpy", *preloaded()):
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    run: Callable[..., None] = importlib.import_module("evolve.worker.runner.runner").run
    importlib.import_module("evolve.worker.runner.probes").prepare()
    if COMPILER in os.environ:
        with _driver_left_alone():
            importlib.import_module("evolve.worker.build.inductor").prepare()
    return run


@contextlib.contextmanager
def _driver_left_alone() -> Iterator[None]:
    """PyTorch's compiler asks for a GPU while it is imported, and is told that there is one.

    Torch would ask the driver, which no child could use after that, or NVML, which starts a thread.
    """
    cuda = importlib.import_module("torch.cuda")
    asked, cuda.is_available = cuda.is_available, lambda: True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cuda.is_available = asked  # type: ignore[attr-defined]


def _have_triton_know_itself(capability: int) -> None:
    """Triton's cached version of itself: it hashes itself and runs its assembler.

    Each process would do that again before it looks into its cache, which takes 0.3 to 1 s.
    """
    # Other versions do otherwise, and an assembler that does not run is for candidates to meet.
    missing = (ImportError, AttributeError, KeyError, TypeError)
    with contextlib.suppress(*missing, OSError, RuntimeError, subprocess.SubprocessError):
        backends = importlib.import_module("triton.backends")
        target = backends.compiler.GPUTarget("cuda", capability, 32)
        backends.backends["nvidia"].compiler(target).hash()
        importlib.import_module("triton.runtime.cache").triton_key()
