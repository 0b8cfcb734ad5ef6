"""`python -m evolve.worker serve`: the judge behind JSON lines on standard input and output."""

import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn, TextIO

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.task import Task
from evolve.worker.base import phases
from evolve.worker.base.infra import InfraFault
from evolve.worker.base.versions import versions
from evolve.worker.judge.doctor import examine
from evolve.worker.judge.judge import Judge
from evolve.worker.sandbox import syscalls
from evolve.worker.service import protocol
from evolve.worker.service.protocol import ProtocolError, Request
from evolve.worker.session.provenance import evaluator_version


class Server:
    """Answers requests, several at once; the reply of each is one line."""

    def __init__(self, judge: Judge, write: Callable[[str], None]) -> None:
        self._judge = judge
        self._write = write
        self._pool = ThreadPoolExecutor(2 * judge.device.slots)
        self._methods: dict[str, Callable[..., Any]] = {
            "hello": self._hello,
            "audit": self._audit,
            "conditions": self._conditions,
            "noise": self._noise,
            "reference": self._reference,
            "events": self._events,
            "baselines": self._baselines,
            "compiled": self._compiled,
            "evaluate": self._evaluate,
            "doctor": lambda: examine(judge),
        }

    def accept(self, request: Request) -> None:
        """Take a request on; its reply is written when it is there."""
        future = self._pool.submit(self._answer, request)
        future.add_done_callback(lambda done: self._reply(request, done))

    def _answer(self, request: Request) -> Any:
        method = self._methods.get(request.method)
        if method is None:
            known = ", ".join([*self._methods, "shutdown"])
            raise UsageError(f"unknown method {request.method!r}; there are: {known}")
        try:
            inspect.signature(method).bind(**request.params)
        except TypeError as error:
            raise UsageError(f"{request.method}: {error}") from error
        if not request.phases:
            return method(**request.params)
        with phases.telling(lambda text: self._write(protocol.phase(request.id, text))):
            return method(**request.params)

    def _reply(self, request: Request, done: "Future[Any]") -> None:
        error = done.exception()
        if error is None:
            self._write(protocol.result(request.id, done.result()))
        elif isinstance(error, UsageError):
            self._write(protocol.failure(request.id, "usage", str(error)))
        else:
            traceback.print_exception(error)
            message = f"{type(error).__name__}: {error}"
            self._write(protocol.failure(request.id, "unavailable", message))

    def _hello(self) -> dict[str, Any]:
        device = self._judge.device
        return {
            "device_class": device.device_class,
            "slots": device.slots,
            "sandbox": self._judge.launcher.tier,
            "evaluator_version": evaluator_version(self._judge.device),
            "versions": versions(),
        }

    def _audit(self, task: dict[str, Any]) -> Any:
        return self._judge.audit(_task(task))

    def _conditions(self, task: dict[str, Any]) -> Any:
        return self._judge.conditions(_task(task))

    def _noise(self, task: dict[str, Any]) -> Any:
        return self._judge.noise(_task(task))

    def _reference(self, task: dict[str, Any]) -> Any:
        return self._judge.reference(_task(task))

    def _events(self, task: dict[str, Any]) -> Any:
        return self._judge.events(_task(task))

    def _baselines(self, task: dict[str, Any], names: list[str]) -> Any:
        return self._judge.baselines(_task(task), names)

    def _compiled(self, task: dict[str, Any], variants: list[str]) -> Any:
        return self._judge.compiled(_task(task), variants)

    def _evaluate(
        self,
        task: dict[str, Any],
        source: str,
        fidelity: str = "search",
        opponents: dict[str, str] | None = None,
        target_speedups: dict[str, float] | None = None,
        repeat: int = 0,  # tells equal questions apart, for those between who keep answers
    ) -> Any:
        if fidelity not in tuple(Fidelity):
            raise UsageError(f"fidelity={fidelity!r}: choose one of {', '.join(Fidelity)}")
        evaluation = self._judge.evaluate(
            _task(task), source, Fidelity(fidelity), opponents or {}, target_speedups or {}
        )
        return evaluation.to_json()


def _task(data: dict[str, Any]) -> Task:
    try:
        return Task.from_json(data)
    except (KeyError, TypeError) as error:
        raise UsageError(f"a request's task is malformed: {error!r}") from error


def serve(start: Callable[[], Judge]) -> NoReturn:
    """Serve until `shutdown`, the end of standard input, or SIGTERM; leaves no process behind."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    read, write = _claim_input(), _claim_output()
    try:
        judge = start()
    except UsageError as error:
        write(protocol.failure(None, "usage", str(error)))
        os._exit(2)
    except (EvaluatorUnavailable, InfraFault, OSError) as error:
        write(protocol.failure(None, "unavailable", f"the worker cannot start: {error}"))
        os._exit(1)
    server = Server(judge, write)

    def leave(*_: object) -> None:
        judge.close()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent to handle
    for line in read:
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
        server.accept(request)
    leave()
    raise SystemExit


def _claim_input() -> TextIO:
    """Keep standard input for requests; a task's file that reads it finds its end."""
    requests = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests


def _claim_output() -> Callable[[str], None]:
    """Keep standard output for replies; prints of libraries go to standard error."""
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
