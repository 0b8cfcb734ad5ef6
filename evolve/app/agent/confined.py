"""Starts a coding agent that may write to its folder and its own state only, and read little else.

Its words are JSON FD WORD ...: JSON has `readable` and `writable` paths, the rest is as in
`evolve.worker.sandbox.reaper`, which ends the agent's processes. The network stays open, since the
agent asks its provider. A host whose kernel is older than Linux 6.2 is refused.
"""

import json

from evolve.worker.sandbox import landlock, reaper, syscalls


def main(argv: list[str]) -> int:
    """Run the agent in a confined process; returns its exit status."""
    rules = json.loads(argv[0])

    def confine() -> None:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict(tuple(rules["readable"]), tuple(rules["writable"]), network=True)

    return reaper.run(int(argv[1]), argv[2:], confine)
