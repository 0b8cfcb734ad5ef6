"""A `serve` process as a batch sees it: requests go in, replies come out of one queue."""

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
from evolve.worker import protocol

GRACE_S = 2.0  # for an end on its own terms
GREETING = 0
"""The number of the first request; others count from 1."""

Replies = SimpleQueue[Mapping[str, Any] | None]


class Judge:
    """Starts `python -m evolve.worker serve` in a session of its own; its stderr is ours.

    Args:
        words: options of `serve`.
        replies: what it answers is put here, and None at its end. Somebody else may put None too,
            to wake up whoever waits.
    """

    def __init__(self, words: Sequence[str], replies: Replies) -> None:
        self.ended = False
        self._replies = replies
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evolve.worker", "serve", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def greet(self, patience_s: float, is_stopped: Callable[[], bool]) -> Mapping[str, Any]:
        """What it says of itself, when it has come up.

        Raises:
            UsageError: it refuses its options.
            EvaluatorUnavailable: it does not come up in time, or is no longer wanted.
        """
        self.send(GREETING, "hello", {})
        until = time.monotonic() + patience_s
        while not is_stopped() and time.monotonic() < until:
            reply = self.receive(until - time.monotonic())
            match reply:
                case {"id": 0, "result": dict() as hello}:
                    return hello
                case {"error": {"kind": kind, "message": str() as message}}:
                    raise UsageError(message) if kind == "usage" else EvaluatorUnavailable(message)
            if self.ended:
                raise EvaluatorUnavailable("the judge ended when it was started; see above")
        raise EvaluatorUnavailable("there was no time to start the judge")

    def send(self, number: int, method: str, params: Mapping[str, Any]) -> None:
        """Ask; where the process has ended, that is what the queue will say."""
        request = {"v": protocol.VERSION, "id": number, "method": method, "params": params}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, patience_s: float) -> Mapping[str, Any] | None:
        """The next reply; None where none came in time, somebody called, or the process ended."""
        with suppress(Empty):
            return self._replies.get(timeout=max(patience_s, 0.0))
        return None

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
                    self._replies.put(reply)
        self.ended = True
        self._replies.put(None)
