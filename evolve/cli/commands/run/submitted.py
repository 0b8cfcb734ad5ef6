"""A run as a job of a cluster: stopped by SIGUSR1 it is submitted again, and goes on."""

import re
import signal
from collections.abc import Mapping
from typing import Any

from evolve.app.config.submission import is_restarted
from evolve.cli import signals
from evolve.cli.signals import Stopped
from evolve.core.errors import OK, RESUMABLE


def start(config: Mapping[str, Any]) -> int:
    """Search within a job of submitit, which lets the cluster restart it after SIGUSR1.

    The signal comes some time before the end of the job's time, or when it is pre-empted.
    """
    requeue = signal.getsignal(signal.SIGUSR1)  # of submitit
    code, is_signalled = _search(named(config))
    if is_signalled and callable(requeue):
        print("submitting the job again; it goes on with this run", flush=True)
        requeue(signal.SIGUSR1, None)
    return code


def named(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration under a name that a restarted job finds its run by.

    Without a name it has the task and the number of the job, which stays through restarts.
    """
    if config["name"] is not None:
        return {**config, "on_exists": "resume"} if is_restarted() else dict(config)
    from submitit import JobEnvironment

    task = re.sub(r"[^\w.+-]", "-", str(config["task"]).strip("./"))
    name = f"{task}-job-{JobEnvironment().job_id}"
    return {**config, "name": name, "on_exists": "resume"}


def _search(config: Mapping[str, Any]) -> tuple[int, bool]:
    """The exit status, and whether SIGUSR1 ended the search."""
    from evolve.app.launch import launch
    from evolve.cli.console.frontend import Terminal

    try:
        outcome = signals.run(launch(config, Terminal()))
    except Stopped as stop:
        return RESUMABLE, stop.number == signal.SIGUSR1
    stopped = outcome.reason == signals.reason_of(signal.SIGUSR1)
    return OK if outcome.finished else RESUMABLE, stopped and not outcome.finished
