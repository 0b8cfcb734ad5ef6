"""`python -m evolve.capture.child JOBS`: a process that runs a user's script, once for each job.

JOBS is a JSON file with a list of them. torch is imported once; each job is forked from here, so
the script finds a process in which nothing of torch has run.
"""

import atexit
import json
import os
import sys
import traceback
from pathlib import Path

from evolve.capture.job import perform
from evolve.core.errors import INTERRUPTED


def main(path: str) -> int:
    """Run the jobs in order; a job that leaves no result ends all."""
    if sys.path[0] == str(Path.cwd()):
        del sys.path[0]  # of `-m`; a script has its own folder there
    for job in json.loads(Path(path).read_text()):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _become(job)
        try:
            _, status = os.waitpid(pid, 0)
        except KeyboardInterrupt:  # the script got it too
            return INTERRUPTED
        if not Path(job["result"]).is_file():
            return abs(os.waitstatus_to_exitcode(status)) or 1
    return 0


def _become(job: dict[str, object]) -> None:
    """Perform a job in this forked process, and end it."""
    status = 1  # whatever is raised, this process must not return to the loop
    try:
        perform(job)
        status = 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
