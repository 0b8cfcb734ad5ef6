"""`python -m MODULE WORDS`, forked from a process that has imported everything.

What a command imports takes a processor a second or two, and hundreds are started here. Each is a
process of its own all the same, with folder, environment, output, signals and exit status, and
runs its module from the top. Tests of the start itself use `subprocess`, and so do tests that
compare two processes: forked ones hash alike.
"""

import atexit
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


class Forked:
    """A process with the methods of `subprocess.Popen` that tests use; its output goes to files."""

    def __init__(self, module: str, words: tuple[str, ...], cwd: Path, env: Mapping[str, str]):
        self._out = tempfile.NamedTemporaryFile("r", errors="replace")  # noqa: SIM115
        self._err = tempfile.NamedTemporaryFile("r", errors="replace")  # noqa: SIM115
        self.errors = Path(self._err.name)
        outputs = (self._out.name, self._err.name)
        arguments = (module, words, str(cwd), dict(env), outputs)
        self._process = _context.Process(target=_become, args=arguments)
        self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        return self.printed()

    def line(self, start: str, timeout: float = 60) -> str:
        """The first line of standard output that begins so, once it is there."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.poll() is not None
            out, err = self.printed()
            if found := re.search(rf"^{re.escape(start)}.*(?=\n)", out, re.M):
                return found[0]
            assert not ended and time.monotonic() < deadline, f"no line {start}...: {out}{err}"
            time.sleep(0.01)

    def printed(self) -> tuple[str, str]:
        """Standard output and standard error so far."""
        return Path(self._out.name).read_text(errors="replace"), Path(self._err.name).read_text(
            errors="replace"
        )


def preload(*modules: str) -> None:
    """Import these too, before the first process is started."""
    _context.set_forkserver_preload(["tests.preloaded", *modules])


def start(
    module: str, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Forked:
    """Start `python -m module words`."""
    return Forked(module, words, cwd or Path.cwd(), os.environ if env is None else env)


def run(
    module: str,
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 90,
) -> subprocess.CompletedProcess[str]:
    """Wait for it, as `subprocess.run` does that captures text."""
    process = start(module, *words, cwd=cwd, env=env)
    try:
        out, err = process.communicate(timeout)
    except BaseException:
        process.kill()
        raise
    return subprocess.CompletedProcess([module, *words], process.returncode or 0, out, err)


def _become(
    module: str, words: tuple[str, ...], cwd: str, env: dict[str, str], outputs: tuple[str, str]
) -> None:
    """In the process: turn it into what `python -m module words` would be."""
    for number, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *words]
    sys.modules.pop(module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
