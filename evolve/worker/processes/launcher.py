"""Starting runners: zygotes by environment, one confinement for all, and a second try."""

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.languages.base import Language
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.infra import InfraFault
from evolve.worker.base.interpreter import WITH_COMPILER, Started
from evolve.worker.base.scratch import ScratchFolder
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.processes.prefork import PreforkPool
from evolve.worker.processes.runner_process import RunnerProcess, close_all
from evolve.worker.runner.zygote import Zygote
from evolve.worker.sandbox import policy as sandbox
from evolve.worker.sandbox.policy import ALL_MECHANISMS, Confinement, Mechanism

if TYPE_CHECKING:
    from evolve.worker.devices.base import Device

Key = tuple[tuple[str, str], ...]
"""Of a zygote: the variables that it has beside the device's."""


class Launcher:
    """Forks confined runners; every one of them is dead when `close` returns.

    Raises UsageError if a path of `read` does not exist.

    Args:
        device: That candidates run on.
        require: The weakest sandbox tier to be content with.
        read: Further paths that candidates may read.
        allowed: Mask of sandbox mechanisms to use (tests of the weaker tiers).
        ahead: Zygotes that import already, and are told the device's variables afterwards; one
            `WITH_COMPILER` maybe, which else is started when it is first needed.
        lock: Of the device: runners are given memory while nothing is timed.

    Attributes:
        register: called with each process before it opens the device, so that the process is
            stopped while something is timed (`DeviceLock.add`).
        closed: whether it starts no more.
    """

    def __init__(
        self,
        device: "Device",
        require: str,
        read: tuple[str, ...],
        allowed: int = ALL_MECHANISMS,
        ahead: Sequence[Started] = (),
        lock: HostLock | None = None,
    ) -> None:
        self._device = device
        self._lock = lock or HostLock(device.name)
        self._ahead = {_key(started.variables): started for started in ahead}
        self._failed: set[Key] = set()  # of zygotes with the compiler
        self._require = require
        self._idle = threading.Condition()  # when no runner is being started
        self._starting = 0
        self._zygotes: dict[Key, Zygote] = {}
        self._usual_key = _key({})
        missing = [path for path in read if not Path(path).exists()]
        if missing:
            raise UsageError(f"sandbox.read: {missing[0]} does not exist. Correct the path.")
        self._base = ScratchFolder("runners")
        self._base.path.chmod(0o711)
        self._running: set[RunnerProcess] = set()
        self._prefork: PreforkPool | None = None
        self.register: Callable[[RunnerProcess], None] = lambda _: None
        self.closed = False
        self._confinement = Confinement(
            work="",
            readable=sandbox.readable_paths((*read, *device.readable)),
            memory=device.memory,
            processes=512 + 8 * device.cores,
            limit_address_space=device.limit_address_space,
            devices=device.nodes,
            other_devices=device.other_nodes,
            allowed=allowed,
        )
        self.mechanisms = 0
        self.reasons = ""
        self._unreadable = ""

    @property
    def tier(self) -> str:
        return sandbox.tier(self.mechanisms)

    def probe(self) -> None:
        """Find out, by trying, the sandbox mechanisms of this host.

        Raises:
            UsageError: fewer than required.
            EvaluatorUnavailable: outputs cannot be read from a runner here.
        """
        if not self._try_out() and Mechanism.OWN_UID in Mechanism(self.mechanisms):
            # Some hosts let root read only processes of the same user.
            without = self._confinement.allowed & ~int(Mechanism.OWN_UID)
            self._confinement = replace(self._confinement, allowed=without)
            self._try_out()
        if self._unreadable:
            raise EvaluatorUnavailable(
                f"outputs cannot be read from a candidate's process here ({self._unreadable}); "
                "on the cpu device allow process_vm_readv: kernel.yama.ptrace_scope at most 1, or "
                "the capability SYS_PTRACE"
            )
        if sandbox.TIERS.index(self.tier) < sandbox.TIERS.index(self._require):
            lacking = sandbox.missing_for(self._require, self.mechanisms)
            raise UsageError(
                f"sandbox.require={self._require}: this host grants only {self.tier}; missing: "
                f"{', '.join(lacking)} ({self.reasons or 'no reason given'}). Run where these are "
                "allowed, or ask for less."
            )

    def _try_out(self) -> bool:
        """Start a runner, note its sandbox, and see whether its memory can be read."""
        key = _key({})
        start = partial(self._start, key, self._confinement)
        with self._tried_twice(start) as runner:
            self.mechanisms, self.reasons = runner.mechanisms, runner.reasons
            try:
                self._device.prepare(runner)
                self._device.connect(runner)
            except OSError as error:
                self._unreadable = str(error)
                return False
            except CandidateFault as fault:  # no candidate is there: the host's doing
                self._unreadable = fault.feedback
                return False
        self._unreadable = ""
        return True

    def start(
        self,
        language: Language,
        readable: tuple[str, ...] = (),
        tensors: int = 0,
        all_queues: bool = False,
        observed: bool = False,
        compiles: bool = False,
    ) -> RunnerProcess:
        """A fresh runner for a program of this language, for `tensors` bytes (`Device.connect`).

        With `all_queues` its work may be in several streams at once (`Device.prepare`); one that is
        `observed` may start tools (`Confinement`); one that `compiles` needs PyTorch's compiler.

        Raises:
            InfraFault: no runner can be started, even by a fresh zygote.
        """
        confinement = replace(
            self._confinement,
            readable=self._confinement.readable + readable,
            observed=observed,
        )
        variables = language.variables_on(self._device.kind)
        key = _key({**variables, **WITH_COMPILER})
        if compiles and key not in self._failed:
            try:
                return self._connected_by(key, confinement, tensors, all_queues)
            except InfraFault as error:
                if self.closed or _is_the_devices(error):
                    raise
                self._failed.add(key)
                print(
                    f"evolve: PyTorch's compiler cannot be kept imported here ({error}); each "
                    "process that needs it imports it for itself, which takes seconds",
                    file=sys.stderr,
                    flush=True,
                )
        return self._connected_by(_key(variables), confinement, tensors, all_queues)

    def _connected_by(
        self, key: Key, confinement: Confinement, tensors: int, all_queues: bool
    ) -> RunnerProcess:
        start = partial(self._connected, key, confinement, tensors, all_queues)
        return self._tried_twice(start)

    def _tried_twice(self, start: Callable[[], RunnerProcess]) -> RunnerProcess:
        """The runner, or else another, of a fresh zygote if the first one's was to blame."""
        try:
            return start()
        except (ConnectionError, InfraFault):
            pass
        try:
            return start()
        except ConnectionError as error:
            raise InfraFault(str(error)) from error

    def start_prefork(self) -> None:
        """From now on, have processes ready."""
        if self._device.preforked:
            make = partial(self._prepared, self._usual_key, self._confinement)
            self._prefork = PreforkPool(make, self._device.preforked)

    def _connected(
        self, key: Key, confinement: Confinement, tensors: int, all_queues: bool
    ) -> RunnerProcess:
        try:
            with ExitStack() as on_failure:
                runner = None if all_queues else self._preforked(key, confinement)
                runner = runner or self._prepared(key, confinement, all_queues)
                on_failure.enter_context(runner)
                with self._lock.shared():
                    self._device.connect(runner, tensors)
                on_failure.pop_all()
        except (OSError, CandidateFault) as error:  # no candidate code has run yet
            raise InfraFault(f"a runner cannot use the device: {error}") from error
        return runner

    def _prepared(
        self, key: Key, confinement: Confinement, all_queues: bool = False
    ) -> RunnerProcess:
        """A fresh process that has opened the device."""
        with ExitStack() as on_failure:
            runner = on_failure.enter_context(self._start(key, confinement))
            self.register(runner)
            if self._device.ends_alone:
                runner.end_within(self._lock.shared)
            self._device.prepare(runner, all_queues)
            on_failure.pop_all()
        return runner

    def _preforked(self, key: Key, confinement: Confinement) -> RunnerProcess | None:
        """One that is ready, of the same zygote and confined in the same way, if there is one."""
        if self._prefork is None or (key, confinement) != (self._usual_key, self._confinement):
            return None
        return self._prefork.take()

    def _start(self, key: Key, confinement: Confinement) -> RunnerProcess:
        with self._idle:
            if self.closed:
                raise InfraFault("the evaluator is shutting down")
            zygote = self._zygote(key)
            self._starting += 1
        try:
            runner = RunnerProcess(zygote, confinement, self._base.path)
            with self._idle:
                self._running = {other for other in self._running if other.alive} | {runner}
            return runner
        except (ConnectionError, InfraFault):
            self._discard(key, zygote)
            raise
        finally:
            with self._idle:
                self._starting -= 1
                self._idle.notify_all()

    def _zygote(self, key: Key) -> Zygote:
        zygote = self._zygotes.get(key)
        if zygote is None or not zygote.alive:
            variables, ahead = dict(key) | self._device.variables, self._ahead.pop(key, None)
            zygote = self._zygotes[key] = Zygote(variables, self._device.capability, ahead)
        return zygote

    def _discard(self, key: Key, zygote: Zygote) -> None:
        """Have the next runner come from a fresh one, unless another thread has seen to it."""
        with self._idle:
            if self._zygotes.get(key) is zygote:
                del self._zygotes[key]
        zygote.close()

    def zygotes(self) -> list[Zygote]:
        return list(self._zygotes.values())

    def close(self) -> None:
        """End every runner and zygote, once."""
        if self.closed:
            return
        with self._idle:
            self.closed = True
        if self._prefork is not None:
            self._prefork.close()
        with self._idle:
            for started in self._ahead.values():
                started.close()
            for zygote in self._zygotes.values():
                zygote.close()
            self._idle.wait_for(lambda: not self._starting)
            for runner in self._running:
                runner.end_within(contextlib.nullcontext)
            close_all(self._running)
        self._base.close()


def _key(variables: Mapping[str, str]) -> Key:
    return tuple(sorted(variables.items()))


def _is_the_devices(error: Exception) -> bool:
    """Whether the device has refused something (memory, mostly), which no fresh zygote mends."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, ConnectionError)
