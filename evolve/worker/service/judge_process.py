"""A `serve` process as a batch sees it; the replies of several come out of one queue."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.worker.service import protocol

GRACE_S = 2.0  # for an end on its own terms
POLL_S = 0.2
GREETING = 0
"""The number of the first request; others count from 1."""

Reply = Mapping[str, Any]
Replies = SimpleQueue[Reply | None]


class JudgeProcess:
    """Starts `python -m evolve.worker serve` in its own session, with this process's stderr.

    Args:
        words: options of `serve`.
        replies: its answers are put here, and None at its end. Several judges may share it, and
            other threads may put None too, to wake up a waiting one.

    Attributes:
        hello: its greeting; empty before `greet`.
        ended: whether the process has ended, and all that it answered is in the queue.
    """

    def __init__(self, words: Sequence[str], replies: Replies) -> None:
        self.hello: Mapping[str, Any] = {}
        self.ended = False
        self._replies = replies
        self._first: SimpleQueue[Reply | None] = SimpleQueue()  # before and with the greeting
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evolve.worker", "serve", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def slots(self) -> int:
        """How many requests it suggests to have under way at once."""
        return int(self.hello["slots"])

    def greet(self, patience_s: float, is_stopped: Callable[[], bool]) -> None:
        """Wait until it has come up.

        Raises:
            UsageError: it refuses its options.
            EvaluatorUnavailable: it does not come up in time, or is no longer wanted.
        """
        self.send(GREETING, "hello", {})
        until = time.monotonic() + patience_s
        while not is_stopped() and time.monotonic() < until:
            reply: Reply = {}
            with suppress(Empty):
                reply = self._first.get(timeout=POLL_S) or {}
            match reply:
                case {"result": dict() as hello}:
                    self.hello = hello
                    return
                case {"error": {"kind": kind, "message": str() as message}}:
                    raise UsageError(message) if kind == "usage" else EvaluatorUnavailable(message)
            if self.ended and self._first.empty():
                raise EvaluatorUnavailable("the judge ended when it was started; see above")
        raise EvaluatorUnavailable("there was no time to start the judge")

    def send(self, number: int, method: str, params: Mapping[str, Any]) -> None:
        """Ask; if the process has ended, the queue will say so."""
        request = {"v": protocol.VERSION, "id": number, "method": method, "params": params}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """End it with everything that it started."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                reply = json.loads(line)
                if isinstance(reply, dict):
                    queue = self._replies if reply.get("id") else self._first
                    queue.put(reply)
        self.ended = True
        self._replies.put(None)
