"""The judge's handle of one runner: commands with deadlines, and an end that is final."""

import contextlib
import os
import select
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from evolve.core.evaluation import Status
from evolve.worker.base import faults
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.infra import InfraFault
from evolve.worker.ipc import messages
from evolve.worker.ipc.messages import (
    ChannelClosed,
    ChannelFault,
    DeadlineExceeded,
    Done,
    Output,
    Reply,
)
from evolve.worker.ipc.tensor_buffer import Outline, Shared
from evolve.worker.processes.stopping import StoppableProcess
from evolve.worker.reference.conditions import USUAL, Conditions
from evolve.worker.runner.zygote import Zygote
from evolve.worker.sandbox.policy import Confinement
from evolve.worker.sandbox.supervisor import Fate, descendants, receive_fate

START_S = 20.0
_FATE_S = 10.0
_REST_S = 1.0  # at the least, for the rest of an answer that has begun
_CREDENTIALS, _DESCRIPTOR = struct.Struct("iii"), struct.Struct("i")


class Needs(NamedTuple):
    """A process's needs of the device beside its models, to be timed.

    Attributes:
        block: bytes for the outputs of a timed block.
        all_queues: whether it opens all queues of a GPU (`hw_queues`).
        observed: whether a tool is started in it (`RunnerProcess.run_isolated`).
    """

    block: int = 0
    all_queues: bool = False
    observed: bool = False


UNTIMED = Needs()


class RunnerProcess(StoppableProcess):
    """One forked, confined process that runs a candidate or the reference.

    Every method that talks to it raises `CandidateFault` with a status from trusted facts: the
    deadline, `waitpid`, or the kind of error that the stub reported. Use as a context manager;
    leaving it kills the process and all that it started.
    """

    def __init__(self, zygote: Zygote, confinement: Confinement, base: Path) -> None:
        super().__init__()
        self._work = tempfile.mkdtemp(dir=base)
        self._fate: Fate | None = None
        self._at_end: list[Callable[[], None]] = []
        self._ending: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self.has_candidate = False  # whether foreign code may run there
        self.is_observed = confinement.observed
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, self._work, ignore_errors=True)
            self._channel, self._control = zygote.fork(replace(confinement, work=self._work))
            on_failure.callback(self.close)
            try:
                self.pid, self.folder = self._peer()
                self._at_end.append(partial(os.close, self.folder))
                ready = self._parse(messages.parse_ready, self._expect(Reply.READY, START_S))
            except CandidateFault as fault:  # no candidate code has run yet
                raise InfraFault(f"a runner did not start: {fault}") from fault
            self.mechanisms, self.readable_at, self.reasons = ready
            on_failure.pop_all()

    def __enter__(self) -> "RunnerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _peer(self) -> tuple[int, int]:
        """Its process id, which the kernel attaches to its first message, and its folder."""
        self._channel.settimeout(START_S)
        try:
            space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR.size)
            _, ancillary, _, _ = self._channel.recvmsg(1, space, socket.MSG_PEEK)
            self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        except OSError as error:
            raise faults.timeout("starting", START_S) from error
        sent = {kind: data for _, kind, data in ancillary}
        if len(sent.get(socket.SCM_RIGHTS, b"")) != _DESCRIPTOR.size:
            raise self._ended()
        (folder,) = _DESCRIPTOR.unpack(sent[socket.SCM_RIGHTS])
        return int(_CREDENTIALS.unpack(sent[socket.SCM_CREDENTIALS])[0]), int(folder)

    def load(
        self,
        kind: str,
        text: str,
        seconds: float,
        build: str | None = None,
        may_build: bool = False,
        stub: bool = False,
    ) -> None:
        """Execute a source: `kind` is `candidate` or `reference` (then `text` is the task)."""
        self.has_candidate = self.has_candidate or kind == "candidate"
        command = ("load", kind, text, build, may_build, stub)
        self._ask(command, Reply.ACK, seconds, may_freeze=True)

    def open_gpu(self, seconds: float, all_queues: bool) -> None:
        """Have a fresh process get ready to use the GPU, with all of its queues or one."""
        self._ask(("open_gpu", all_queues), Reply.ACK, seconds, may_freeze=True)

    def use_pool(self, fd: int, size: int, limit: int, library: str, seconds: float) -> int:
        """Have it put all tensors into this memory, `limit` bytes of it; where it maps it."""
        answer = self._ask(("use_pool", size, limit, library), Reply.DONE, seconds, fd)
        (address,) = self._parse(messages.parse_done, answer).addresses or (0,)
        return int(address)

    def construct(
        self,
        case: int,
        seed: int,
        arguments: Shared | None,
        seconds: float,
        conditions: Conditions = USUAL,
    ) -> None:
        size, tree = (arguments.size, arguments.trees[0]) if arguments else (0, b"")
        fd = arguments.fd if arguments else -1
        command = ("construct", case, seed, size, tree, conditions)
        self._ask(command, Reply.ACK, seconds, fd)

    def call(
        self,
        case: int,
        inputs: Shared,
        seconds: float,
        aside: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> Output:
        """One forward on the first inputs of a buffer.

        Where it compiles kernels, that is done within `aside`, if there is one; the process may be
        frozen there, and such time does not count.
        """
        command: tuple[Any, ...] = ("call", case, inputs.size, inputs.trees[0], bool(aside))
        fd, left = inputs.fd, seconds
        try:
            while True:
                start = time.monotonic()
                self.thaw()  # as in `_ask`
                self._send(command, left, fd)
                reply, body = self._receive(left, "call")
                if aside is None or reply is not Reply.ASIDE:
                    return self._parse(messages.parse_output, _of_kind(Reply.OUTPUT, reply, body))
                left -= time.monotonic() - start  # sending too: or not to read would gain time
                with aside():
                    left = self._back(left)
                command, fd = ("go on",), -1
        except CandidateFault as fault:
            if fault.status is Status.TIMEOUT:  # which describes the end
                raise faults.timeout("call", seconds) from fault
            raise

    def _back(self, seconds: float) -> float:
        """Wait until it has compiled something; the seconds that are left of these."""
        start, frozen_s = time.monotonic(), self._frozen_until_now()
        self._expect(Reply.BACK, self._left_at_answer("call", seconds), "call")
        left = seconds - (time.monotonic() - start - (self._frozen_until_now() - frozen_s))
        if left <= 0:
            raise faults.timeout("call", seconds)
        return left

    def trap_torch(self, seconds: float) -> None:
        """Have it ready to count torch's work in the next call."""
        self._ask(("trap_torch",), Reply.ACK, seconds, may_freeze=True)

    def account(self, seconds: float) -> str:
        """Torch's work in that call, by its own account (`torch_share.read`)."""
        return self._text(("account",), seconds)

    def open_profiler(self, seconds: float) -> None:
        """Have it get ready to observe."""
        self._ask(("open_profiler",), Reply.ACK, seconds)

    def observe(self, case: int, inputs: Shared, seconds: float) -> str:
        """Which kernels one forward starts, by the process's own account (`profiling.observe`)."""
        command = ("observe", case, inputs.size, inputs.trees[0])
        return self._text(command, seconds, inputs.fd)

    def events(self, case: int, inputs: Shared, trials: int, seconds: float) -> str:
        """How long its forwards take, by the process's own account (`events.read`)."""
        command = ("events", case, inputs.size, inputs.trees[0], trials)
        return self._text(command, seconds, inputs.fd)

    def run_isolated(self, case: int, inputs: Shared, tool: tuple[str, ...], seconds: float) -> str:
        """A tool's output around one forward in the sandbox (`tool_process.observe`)."""
        command = ("isolated", case, inputs.size, inputs.trees[0], tool)
        return self._text(command, seconds, inputs.fd, may_freeze=True)

    def write(self, case: int, inputs: Outline, variant: str, seconds: float) -> None:
        """Have the compiler's code for the reference written to files (`inductor.folder_of`)."""
        self._ask(("write", case, inputs.size, inputs.tree, variant), Reply.ACK, seconds)

    def use_inputs(self, fd: int, size: int, seconds: float) -> int:
        """Have it map this memory, where inputs come from now on."""
        answer = self._ask(("use_inputs", size), Reply.DONE, seconds, fd)
        (address,) = self._parse(messages.parse_done, answer).addresses or (0,)
        return int(address)

    def use_signals(self, fd: int, spin_s: float, seconds: float) -> None:
        """Have it map the page of signals, and spin so long for one before it sleeps."""
        self._ask(("use_signals", spin_s), Reply.ACK, seconds, fd)

    def stage(self, inputs: Shared, seconds: float) -> None:
        """Hand over the inputs of a block of calls."""
        self._ask(("stage", inputs.size, inputs.trees), Reply.ACK, seconds, inputs.fd)

    def record(self, case: int, size: int, trees: tuple[bytes, ...], seconds: float) -> None:
        """Have forwards on inputs laid out like these recorded as one CUDA graph."""
        self._ask(("record", case, size, trees), Reply.ACK, seconds)

    def run(
        self,
        case: int,
        seconds: float,
        kind: str = "calls",
        resume: bool = False,
        turns: int = 0,
        page: int = -1,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Done:
        """A forward on each of the inputs staged; none of the kind `nothing`.

        With `resume` the process stands (`pause`), and goes on once the command is there. With
        `turns` it makes so many calls as `meanwhile` gives them to it, by a page sent (`turns`); of
        the kind `empty`, they only make an output like the last one.
        """
        self._send(("run", case, kind, turns), seconds, page)
        if resume:
            self.resume()
        meanwhile()
        return self._parse(messages.parse_done, self._expect(Reply.DONE, seconds, "run"))

    def has_word(self) -> bool:
        """Whether it has said something, or ended."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        return bool(poller.poll(0))

    def begin(
        self,
        case: int,
        kind: str,
        layout: int,
        trees: tuple[bytes, ...],
        sequence: int,
        seconds: float,
    ) -> None:
        """Have it ready for a window, which begins and ends by signals (`signals`).

        Args:
            case: Of the model.
            kind: The work: `calls`, one `graph` of them, or `nothing`.
            layout: Number of the layout of the inputs.
            trees: Of that layout if it is new, else none.
            sequence: Number of the window.
            seconds: That getting ready may take.
        """
        self._ask(("block", case, kind, layout, trees, sequence), Reply.ACK, seconds)

    @property
    def channel_fd(self) -> int:
        """Readable when the process has something to say."""
        return self._channel.fileno()

    def require_word(self, seconds: float) -> None:
        """Raise for a message in the middle of a window: it answers no request."""
        self._receive(seconds, "run")
        raise CandidateFault(Status.HACK, "the candidate's process answered out of turn")

    def cpu_seconds(self) -> float:
        """Processor time that the process has used so far, by the kernel's books."""
        clock = (~self.pid << 3) | 2  # Linux: the scheduler's clock of another process
        try:
            return time.clock_gettime(clock)
        except OSError as error:
            raise self._ended() from error

    def reserve(self, size: int, seconds: float) -> None:
        """Have the process touch heap memory, so that a timed block need not."""
        self._ask(("reserve", size), Reply.ACK, seconds)

    def drop(self, seconds: float) -> None:
        self._ask(("drop",), Reply.ACK, seconds)

    def has_other_processes(self) -> bool:
        """Whether other processes of the candidate are alive beside this one."""
        try:
            parent = self._parent()
        except OSError as error:
            raise self._ended() from error
        return descendants(parent) != [self.pid]

    def _ask(
        self,
        command: tuple[Any, ...],
        answer: Reply,
        seconds: float,
        fd: int = -1,
        may_freeze: bool = False,
    ) -> bytes:
        if not may_freeze:  # who has the device asks; the turn before may have yet to thaw it
            self.thaw()
        self._send(command, seconds, fd)
        left = self._left_at_answer(command[0], seconds) if may_freeze else seconds
        return self._expect(answer, left, command[0])

    def _text(
        self, command: tuple[Any, ...], seconds: float, fd: int = -1, *, may_freeze: bool = False
    ) -> str:
        answer = self._ask(command, Reply.TEXT, seconds, fd, may_freeze)
        return str(self._parse(messages.parse_text, answer))

    def _send(self, command: tuple[Any, ...], seconds: float, fd: int) -> None:
        self._channel.settimeout(seconds)
        try:
            messages.send_command(self._channel, command, (fd,) if fd >= 0 else ())
        except ChannelClosed as error:
            raise self._ended() from error
        except DeadlineExceeded as error:
            raise faults.timeout(command[0], seconds) from error

    def _expect(self, answer: Reply, seconds: float, what: str = "starting") -> bytes:
        return _of_kind(answer, *self._receive(seconds, what))

    def _receive(self, seconds: float, what: str) -> tuple[Reply, bytes]:
        try:
            reply, body = messages.receive_reply(self._channel, time.monotonic() + seconds)
        except DeadlineExceeded as error:
            raise faults.timeout(what, seconds) from error
        except ChannelClosed as error:
            raise self._ended() from error
        except ChannelFault as error:
            raise CandidateFault(Status.HACK, str(error)) from error
        if reply is Reply.ERROR:
            raise faults.from_error(*self._parse(messages.parse_error, body))
        return reply, body

    def _left_at_answer(self, what: str, seconds: float) -> float:
        """Wait for the first word in that time, not counting time in which it was frozen.

        Returns:
            The seconds that are left for the rest of the answer.
        """
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        left, counted = seconds, self._frozen_until_now()
        while left > 0:
            start = time.monotonic()
            if poller.poll(1e3 * left):
                return max(left - (time.monotonic() - start), _REST_S)
            frozen = self._frozen_until_now()
            left, counted = frozen - counted, frozen
        raise faults.timeout(what, seconds)

    def _parse(self, parser: Any, body: bytes) -> Any:
        try:
            return parser(body)
        except ChannelFault as error:
            raise CandidateFault(Status.HACK, str(error)) from error

    def _ended(self) -> Exception:
        """The process went away: ask its guard how, once."""
        if self._fate is None:
            self._fate = receive_fate(self._control, 1.0) or self._stop()
        if self._fate is None:
            return InfraFault("a runner's guard ended without a word")
        return faults.from_fate(self._fate)

    def _stop(self) -> Fate | None:
        try:
            self._control.shutdown(socket.SHUT_WR)
        except OSError:
            return None
        return receive_fate(self._control, _FATE_S)

    def on_close(self, action: Callable[[], None]) -> None:
        """Have something done once the process is dead, and while the same is held as for that."""
        self._at_end.append(action)

    def end_within(self, ending: Callable[[], AbstractContextManager[None]]) -> None:
        """Have it end only while this is held: a GPU's driver is busy with it and its memory."""
        self._ending = ending

    @property
    def has_ended(self) -> bool:
        """Whether its guard has said that nothing of it is left."""
        return self._fate is not None

    @property
    def alive(self) -> bool:
        return self._fate is None and self._control.fileno() >= 0

    def close(self) -> str:
        """Kill the process and its descendants; returns the printed text."""
        if self.alive or self._at_end:
            with self._ending():
                if self.alive:
                    self._fate = self._stop()
                while self._at_end:
                    self._at_end.pop()()
        self._channel.close()
        self._control.close()
        shutil.rmtree(self._work, ignore_errors=True)
        return messages.sanitise(self._fate.output) if self._fate else ""


def _of_kind(wanted: Reply, reply: Reply, body: bytes) -> bytes:
    if reply is not wanted:
        raise CandidateFault(Status.HACK, "the candidate's process answered out of turn")
    return body


def close_all(processes: Iterable[RunnerProcess]) -> None:
    """Close them side by side: each may have to wait its turn, and to leave a GPU takes a while."""
    # No executor: a signal's handler closes too, maybe within one's submit, which holds a lock.
    closing = [threading.Thread(target=process.close) for process in processes]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
