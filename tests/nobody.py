"""A process for which permissions count, whoever runs the tests."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection

from evolve.core.errors import StoreError, UsageError

NOBODY = 65534


def as_nobody(action: Callable[[], str]) -> str:
    """What an action answers in a process without root's right to write everywhere."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_answer, args=(theirs, action))
    child.start()
    answer: str = ours.recv() if ours.poll(20) else "no answer"
    child.join()
    return answer


def _answer(pipe: Connection, action: Callable[[], str]) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        pipe.send(action())
    except (UsageError, StoreError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
