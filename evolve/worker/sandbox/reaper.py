"""Runs a program of the user's, and ends all that it has started with it, in any session.

Its words are FD WORD ...: the number of an error that keeps the program from being started is
written to the descriptor FD. SIGTERM, and the end of the parent process, end it.
"""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from evolve.worker.sandbox import syscalls
from evolve.worker.sandbox.supervisor import end_descendants

NOT_STARTED = 127
_OF_INTEREST = (signal.SIGTERM, signal.SIGCHLD)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def main(argv: Sequence[str]) -> int:
    """Run a command; returns its exit status."""
    return run(int(argv[0]), argv[1:])


def run(fd: int, command: Sequence[str], confine: Callable[[], None] = lambda: None) -> int:
    """Run a command as this process's only work.

    Orphans of the command come to this process (PR_SET_CHILD_SUBREAPER), so that none gets away.

    Args:
        fd: an open descriptor, see above.
        command: the program and its arguments.
        confine: called in the program's process before it begins.

    Returns:
        Its exit status; 128 and the number of the signal that has ended it.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _OF_INTEREST)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    os.set_inheritable(fd, False)
    child = os.fork()
    if child == 0:
        _become(fd, command, confine)
    os.close(fd)
    try:
        return _status_of(child)
    finally:
        with suppress(PermissionError):  # a program with another user's rights
            end_descendants()


def _become(fd: int, command: Sequence[str], confine: Callable[[], None]) -> None:
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_INTEREST)
        confine()
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(fd, str(error.errno).encode())
    finally:
        os._exit(NOT_STARTED)


def _status_of(child: int) -> int:
    """Wait for the program, or for the word to end it."""
    while signal.sigwait(_OF_INTEREST) != signal.SIGTERM:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == child:
                    code = os.waitstatus_to_exitcode(found[1])
                    return code if code >= 0 else 128 - code
    return 128 + signal.SIGTERM
