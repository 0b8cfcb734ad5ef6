"""`python -m evolve.worker serve`: the referee behind JSON lines on standard input and output."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.task import Task
from evolve.worker import protocol, syscalls
from evolve.worker.doctor import examine
from evolve.worker.environment import EVALUATOR_VERSION, versions
from evolve.worker.faults import InfraFault
from evolve.worker.protocol import ProtocolError, Request
from evolve.worker.referee import Referee


class Server:
    """Answers requests, several at once; the reply of each is one line."""

    def __init__(self, referee: Referee, write: Callable[[str], None]) -> None:
        self._referee = referee
        self._write = write
        self._methods: dict[str, Callable[..., Any]] = {
            "hello": self._hello,
            "audit": self._audit,
            "noise": self._noise,
            "evaluate": self._evaluate,
            "doctor": lambda: examine(referee),
        }

    def answer(self, request: Request) -> None:
        """Do what is asked and write the reply."""
        method = self._methods.get(request.method)
        if method is None:
            known = ", ".join([*self._methods, "shutdown"])
            message = f"unknown method {request.method!r}; there are: {known}"
            return self._write(protocol.failure(request.id, "usage", message))
        try:
            reply = protocol.result(request.id, method(**request.params))
        except (UsageError, TypeError, KeyError, ValueError) as error:
            reply = protocol.failure(request.id, "usage", _message(error))
        except (EvaluatorUnavailable, InfraFault, OSError, RuntimeError) as error:
            reply = protocol.failure(request.id, "unavailable", _message(error))
        return self._write(reply)

    def _hello(self) -> dict[str, Any]:
        device = self._referee.device
        return {
            "device": device.name,
            "slots": device.slots,
            "sandbox": self._referee.launcher.tier,
            "evaluator_version": EVALUATOR_VERSION,
            "versions": versions(),
        }

    def _audit(self, task: dict[str, Any]) -> Any:
        return self._referee.audit(Task.from_json(task))

    def _noise(self, task: dict[str, Any]) -> Any:
        return self._referee.noise(Task.from_json(task))

    def _evaluate(
        self,
        task: dict[str, Any],
        source: str,
        fidelity: str = "search",
        opponents: dict[str, str] | None = None,
    ) -> Any:
        evaluation = self._referee.evaluate(
            Task.from_json(task), source, Fidelity(fidelity), opponents or {}
        )
        return evaluation.to_json()


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"


def serve(start: Callable[[], Referee]) -> NoReturn:
    """Serve until `shutdown`, the end of standard input, or SIGTERM; leaves no process behind."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    write = _claim_output()
    try:
        referee = start()
    except UsageError as error:
        write(protocol.failure(None, "usage", str(error)))
        os._exit(2)
    server = Server(referee, write)

    def leave(*_: object) -> None:
        referee.close()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent to handle
    pool = ThreadPoolExecutor(referee.device.slots + 1)
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            request = protocol.parse_request(line)
        except ProtocolError as error:
            write(protocol.failure(error.id, "usage", str(error)))
            continue
        if request.method == "shutdown":
            write(protocol.result(request.id, {}))
            break
        pool.submit(server.answer, request)
    leave()
    raise SystemExit


def _claim_output() -> Callable[[str], None]:
    """Keep standard output for replies; whatever any library prints goes to standard error."""
    sys.stdout.flush()
    fd = os.dup(1)
    os.set_inheritable(fd, False)
    os.dup2(2, 1)
    lock = threading.Lock()

    def write(line: str) -> None:
        data = line.encode()
        with lock:
            while data:
                data = data[os.write(fd, data) :]

    return write
