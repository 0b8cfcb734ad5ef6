"""One worker process: a session of its own, JSON lines in and out, and an end that is certain."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from signal import SIGKILL, strsignal
from typing import Any, cast

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.worker.service import protocol
from evolve.worker.service.dispatch.faults import CLOSED, CallFailed, CallOverdue, WorkerDied

MAX_LINE = 16 << 20  # bytes; raw samples of a long evaluation, the largest reply, are far below
MAX_LAST_WORDS = 2000  # bytes
GRACE_S = 1.0  # for pipes that an orphan holds open after the worker itself has ended
SAID = b"evolve: "  # how a line begins on standard error that the judge itself writes

_Fault = tuple[type[Exception], str]  # made into an exception for each call that it concerns


class WorkerProcess(asyncio.SubprocessProtocol):
    """A worker and the calls that wait for it; use `WorkerProcess.spawn`.

    It is a protocol because asyncio's streams report the end of a process only when all of its
    pipes are closed, and an orphan of the worker can hold one open for ever.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._about: dict[int, str] = {}  # what calls are about, by number
        self.phases: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._line = bytearray()
        self._last_words = b""
        self._said = b""  # a line that has not ended yet
        self._end: _Fault | None = None
        self._killed = False
        self._gone = asyncio.Event()

    @classmethod
    async def spawn(cls, command: Sequence[str], environment: Mapping[str, str]) -> "WorkerProcess":
        """Start a worker; raises EvaluatorUnavailable if there is no such program."""
        try:
            _, worker = await asyncio.get_running_loop().subprocess_exec(
                cls,
                *command,
                env=environment,
                start_new_session=True,  # Ctrl-C is handled here, and one signal ends all of it
            )
        except OSError as error:
            raise EvaluatorUnavailable(
                f"device.python={command[0]} cannot be started: {error.strerror}; "
                "give the path of a Python interpreter with torch installed"
            ) from error
        return worker

    @property
    def alive(self) -> bool:
        """Whether it is worth asking."""
        return self._end is None and self._transport.get_returncode() is None

    async def ask(
        self, method: str, params: Mapping[str, Any], deadline_s: float, about: str = ""
    ) -> Any:
        """The result of one call. A worker that misses the deadline is killed.

        While it is under way `phases[about]` is what the worker says that it is at.

        Raises:
            UsageError: the worker says that it cannot serve the request as it is.
            WorkerDied: it ended before it had answered.
            CallOverdue: it missed the deadline.
            CallFailed: it reports a failure of its own.
            EvaluatorUnavailable: it was closed meanwhile.
        """
        if self._end is not None:
            raise _exception(self._end)
        number = next(self._numbers)
        request = {"v": protocol.VERSION, "id": number, "method": method, "params": params}
        request |= {"phases": True} if about else {}
        future = asyncio.get_running_loop().create_future()
        try:
            self._waiting[number] = future
            self._about[number] = about
            self._stdin.write(json.dumps(request).encode() + b"\n")
            async with asyncio.timeout(deadline_s):
                return await future
        except TimeoutError:
            self.kill(f"the evaluation worker was killed: '{method}' was overdue")
            raise CallOverdue(
                f"the evaluation worker did not answer '{method}' within {deadline_s:g} s and was "
                f"killed; its last words: {self._words()}"
            ) from None
        finally:
            self.phases.pop(self._about.pop(number, ""), None)
            self._waiting.pop(number, None)  # a late reply to a call that was given up is dropped

    def kill(self, why: str) -> None:
        """End its whole session at once; every call under way raises WorkerDied."""
        self._fail_all(WorkerDied, why)
        self._kill_group()

    async def close(self, close_s: float) -> None:
        """End it with all its children: by the end of its input, after `close_s` by force.

        Every call under way raises EvaluatorUnavailable.
        """
        self._fail_all(EvaluatorUnavailable, CLOSED)
        self._stdin.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(close_s):
                    await self._gone.wait()
        finally:
            self._kill_group()
        with suppress(TimeoutError):  # the kernel may hold a process in a driver call
            async with asyncio.timeout(2 * GRACE_S):
                await self._gone.wait()
        self._transport.close()  # or Python complains of it once the loop is closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != 1:
            self._note(data)
            self._pass_on(data)
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._receive(bytes(self._line + end))
            self._line.clear()
        self._line += rest
        if len(self._line) > MAX_LINE:
            self._line.clear()
            self.kill(f"the evaluation worker was killed: a reply exceeds {MAX_LINE >> 20} MiB")

    def process_exited(self) -> None:
        self._kill_group()  # what it left behind
        # After it was given up, its last words are not read.
        grace_s = GRACE_S if self._end is None else 0.0
        asyncio.get_running_loop().call_later(grace_s, self._finish)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()  # it has ended and all it had written has been read

    def _finish(self) -> None:
        code = self._transport.get_returncode() or 0
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code} ({strsignal(-code)})"
        self._fail_all(
            WorkerDied, f"the evaluation worker ended {how}; its last words: {self._words()}"
        )
        self._transport.close()
        self._gone.set()

    def _receive(self, line: bytes) -> None:
        reply = _parse(line)
        if reply is None:  # a library's banner, say: no reason to give the worker up
            self._note(line + b"\n")
            return
        if reply.number is None and reply.error:  # it refuses to start, or cannot follow us at all
            self._fail_all(*reply.error)
            self._kill_group()
            return
        if reply.phase is not None:  # empty after the wait of a call that is at none
            if (about := self._about.get(reply.number or 0)) is not None:
                self.phases[about] = reply.phase
            return
        future = self._waiting.get(reply.number) if reply.number is not None else None
        if future is None or future.done():
            return
        if reply.error:
            future.set_exception(_exception(reply.error))
        else:
            future.set_result(reply.result)

    def _fail_all(self, kind: type[Exception], why: str) -> None:
        """The first reason stands for calls that come later."""
        self._end = self._end or (kind, why)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(kind(why))

    def _kill_group(self) -> None:
        if not self._killed:  # once: after its end the number may belong to another process
            self._killed = True
            with suppress(ProcessLookupError):
                os.killpg(self._transport.get_pid(), SIGKILL)

    def _note(self, data: bytes) -> None:
        self._last_words = (self._last_words + data)[-MAX_LAST_WORDS:]

    def _pass_on(self, data: bytes) -> None:
        """Pass on the judge's own messages; those of libraries are dropped."""
        *lines, rest = (self._said + data).split(b"\n")
        self._said = rest[:MAX_LAST_WORDS]
        for line in lines:
            if line.startswith(SAID):
                print(_printable(line[:MAX_LAST_WORDS]), file=sys.stderr, flush=True)

    def _words(self) -> str:
        return _printable(self._last_words.strip(b"\n").replace(b"\n", b" | ")) or "none"


@dataclass(frozen=True, slots=True)
class _Reply:
    number: int | None
    result: Any = None
    error: _Fault | None = None
    phase: str | None = None


def _printable(data: bytes) -> str:
    text = data.decode(errors="replace")
    return "".join(c if c.isprintable() else " " for c in text).strip()


def _parse(line: bytes) -> _Reply | None:
    """The reply that a line holds, if it holds one."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match data:
        case {"id": int() as number, "phase": str() as phase}:
            return _Reply(number, phase=phase)
        case {"id": int() | None as number, "result": result}:
            return _Reply(number, result=result)
        case {"id": int() | None as number, "error": {"kind": kind, "message": str() as message}}:
            return _Reply(number, error=(UsageError if kind == "usage" else CallFailed, message))
    return None


def _exception(fault: _Fault) -> Exception:
    kind, message = fault
    return kind(message)
