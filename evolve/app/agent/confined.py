"""Starts a coding agent that may write to its folder and its own state only, and read little else.

`python -m evolve.app.agent.confined JSON WORD ...`: JSON has `readable` and `writable` paths. The
network stays open, since the agent asks its provider. A host whose kernel is older than Linux 6.2
is refused.
"""

import json
import os
import sys

from evolve.worker.sandbox import landlock, syscalls


def main(argv: list[str]) -> None:
    """Confine this process, and become the agent."""
    rules, command = json.loads(argv[0]), argv[1:]
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 9)  # SIGKILL: it does not outlive the search
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict(tuple(rules["readable"]), tuple(rules["writable"]), network=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
