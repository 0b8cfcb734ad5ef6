"""`python -m evolve.capture.child`: a process that runs a user's script, once for each job.

A job is a line of JSON on standard input, answered by a line with the exit status once it is done.
torch is imported once; each job is forked from here, so the script finds a process in which nothing
of torch has run. Its output goes to the job's `log`, or to standard error.
"""

import atexit
import contextlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from evolve.capture.job import Performance
from evolve.core.errors import INTERRUPTED
from evolve.worker.sandbox import syscalls


def main() -> int:
    """Answer jobs until there is no other."""
    if sys.path[0] == str(Path.cwd()):
        del sys.path[0]  # of `-m`; a script has its own folder there
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        try:
            _, status = os.waitpid(pid, 0)
        except KeyboardInterrupt:  # the script got it too
            return INTERRUPTED
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()
    return 0


def _end_with_parent() -> None:
    """Let the kernel end this process with the one that started it, however that one ends."""
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(job: dict[str, Any]) -> None:
    """Perform a job in this forked process, and end it."""
    _end_with_parent()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if job["log"]:
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
    status, performance = 1, None
    try:
        performance = Performance(job)
        performance.run()
        status = 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:  # whatever is raised, this process must not return to the loop
        try:
            error = sys.exc_info()[1]
            if performance and error:
                performance.fail(error)
                status = 0  # it is in the job's result
            elif error:
                traceback.print_exc()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
