"""The guard: a small trusted process between the zygote and each runner.

It builds the sandbox, watches the runner's memory, collects the candidate's output, and ends the
candidate with everything that it started: by closing the process namespace if there is one, else as
the subreaper of all descendants. How the runner ended (its *fate*) is known from `waitpid` here and
told to the judge over a socket that no runner holds.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from evolve.worker.sandbox import disk_quota, procfs, syscalls
from evolve.worker.sandbox import policy as sandbox
from evolve.worker.sandbox.open_files import held_by
from evolve.worker.sandbox.policy import Confinement, Mechanism, Report

MAX_OUTPUT = 16 << 10
_FATE = struct.Struct("<BiI")
_WATCH_S = 0.2
_HELD = ("RssAnon", "RssShmem")


class End(IntEnum):
    """Ways in which a runner can end."""

    EXITED = 0
    SIGNALED = 1
    OUT_OF_MEMORY = 2
    STOPPED = 3  # because the judge asked for it
    TOO_MANY_FILES = 4


@dataclass(frozen=True, slots=True)
class Fate:
    """How a runner ended: `code` is its exit status or signal; `output` its printed text."""

    end: End
    code: int
    output: str


def receive_fate(sock: socket.socket, timeout: float) -> Fate | None:
    """The guard's last word, sent when nothing of the candidate is left; None if it never came."""
    sock.settimeout(timeout)
    data = b""
    try:
        while chunk := sock.recv(1 << 16):
            data += chunk
    except OSError:
        return None
    if len(data) < _FATE.size:
        return None
    end, code, size = _FATE.unpack_from(data)
    output = data[_FATE.size : _FATE.size + size].decode(errors="replace")
    return Fate(End(end), code, output)


def guard(
    judge: socket.socket,
    channel: socket.socket,
    confinement: Confinement,
    run: Callable[[socket.socket, Report], None],
) -> None:
    """Body of the guard process; `run` is the runner, called in the confined process.

    `channel` leads from the runner to the judge; the guard keeps no copy of it, so that its end
    means the end of the runner.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    report = Report(confinement.allowed)
    printed, printing = os.pipe()
    uid = sandbox.own_uid(os.getpid()) if os.geteuid() == 0 else None
    if uid is not None:
        os.chown(confinement.work, uid, uid)
    sandbox.separate_processes(report)
    in_namespace = Mechanism.PID_NAMESPACE in report.mask
    child = os.fork()
    if child == 0:
        judge.close()
        os.close(printed)
        _become_runner(report, channel, confinement, uid, printing)
        run(channel, report)
        os._exit(0)
    channel.close()
    os.close(printing)
    end, code, output = _watch(judge, child, printed, confinement)
    end_descendants()
    with contextlib.suppress(OSError):  # it may be too deep to be removed otherwise
        disk_quota.empty(confinement.work)
    if end is End.EXITED and in_namespace and code > 128:
        end, code = End.SIGNALED, code - 128
    text = output[:MAX_OUTPUT]
    with contextlib.suppress(OSError):  # the judge itself may be gone
        judge.sendall(_FATE.pack(end, code, len(text)) + text)


def _become_runner(
    report: Report,
    channel: socket.socket,
    confinement: Confinement,
    uid: int | None,
    printing: int,
) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    sandbox.separate_resources(report, confinement)
    if Mechanism.PID_NAMESPACE in report.mask:
        runner = os.fork()
        if runner:
            channel.close()
            _init(runner)
    os.setsid()
    os.dup2(printing, 1)
    os.dup2(printing, 2)
    os.chdir(confinement.work)
    for fatal in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        signal.signal(fatal, signal.SIG_DFL)  # libraries install handlers that only cost time
    os.close(printing)
    sandbox.confine(report, confinement, uid)


def _init(runner: int) -> None:
    """Process 1 of the namespace: reaps, and ends with the runner, and with it the namespace."""
    while True:
        pid, status = os.wait()
        if pid == runner:
            code = os.waitstatus_to_exitcode(status)
            os._exit(min(code, 127) if code >= 0 else 128 - code)


def _watch(
    judge: socket.socket, child: int, printed: int, confinement: Confinement
) -> tuple[End, int, bytes]:
    """Wait for the child's end, the judge's word, or too much memory or files."""
    ended = os.pidfd_open(child)
    os.set_blocking(printed, False)
    poller = select.poll()
    for fd in (ended, judge.fileno(), printed):
        poller.register(fd, select.POLLIN)
    output = b""
    look = time.monotonic() + _WATCH_S
    while True:
        ready = {fd for fd, _ in poller.poll(_WATCH_S * 1000)}
        if printed in ready:
            chunk = os.read(printed, 1 << 16)
            output += chunk[: max(0, MAX_OUTPUT - len(output))]
            if not chunk:
                poller.unregister(printed)
        if ended in ready:
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(BlockingIOError):
                output += os.read(printed, MAX_OUTPUT)
            return (End.EXITED, code, output) if code >= 0 else (End.SIGNALED, -code, output)
        if judge.fileno() in ready:
            return End.STOPPED, 0, output
        if time.monotonic() >= look:
            if (excess := _excess(confinement)) is not None:
                return excess, 0, output
            look = time.monotonic() + _WATCH_S


def _excess(confinement: Confinement) -> End | None:
    """The excess, if the candidate's processes together exceed their limit."""
    family = descendants(os.getpid())
    held = held_by(family)
    if sum(map(memory_of, family)) + held.buffers > confinement.memory:
        return End.OUT_OF_MEMORY
    if held.nameless > confinement.file_size:
        return End.TOO_MANY_FILES
    if disk_quota.excessive(confinement.work, confinement.file_size):
        return End.TOO_MANY_FILES
    return None


def end_descendants() -> None:
    """Kill until no descendant of this process, a subreaper, is left.

    Orphans come to this process, so that none can get away.

    Raises:
        PermissionError: one of them has the rights of another user.
    """
    while True:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def descendants(pid: int) -> list[int]:
    """Every process below `pid`."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = procfs.children(waiting.pop())
        found += below
        waiting += below
    return found


def memory_of(pid: int) -> int:
    """Bytes that a process holds, without the pages of files; 0 if it has ended.

    The first of its threads that is alive is asked: the process's own entry is that of the thread
    that it began with, and tells nothing once that one has ended.
    """
    for thread in procfs.threads(pid):
        with contextlib.suppress(OSError):
            status = procfs.status(pid, thread)
            if all(name in status for name in _HELD):
                return sum(procfs.size_of(status[name]) for name in _HELD)
    return 0
