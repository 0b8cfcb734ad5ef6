"""A candidate, and the processes that the stages need of it."""

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat

import torch
from torch import Tensor

from evolve.core.compiled import Compiled
from evolve.core.digest import framed_digest
from evolve.core.evaluation import Status
from evolve.languages.base import Language
from evolve.languages.builds import BuildError
from evolve.languages.registry import detect_language
from evolve.languages.torch import TORCH
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.versions import versions
from evolve.worker.build import inductor as compiler
from evolve.worker.build.cache import BuildCache
from evolve.worker.correctness.compare import Judgement, judge
from evolve.worker.devices import output_snapshot
from evolve.worker.devices.base import Device
from evolve.worker.devices.changed_inputs import take_changes
from evolve.worker.ipc.messages import TensorAt
from evolve.worker.processes.launcher import Launcher
from evolve.worker.processes.runner_process import UNTIMED, Needs, RunnerProcess
from evolve.worker.runner import tool_process
from evolve.worker.runner.hw_queues import may_overlap
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.memory_model import (
    compiling_bytes,
    trusted_bytes,
    working_bytes,
    writers,
)
from evolve.worker.session.prepared_task import Check, PreparedCase, PreparedTask

BUILD_S = 120.0
SETUP_S = 30.0
_STREAMS = 3  # that have tensors of a program at the same time
# How long and how often a candidate leaves the lock to compile; each time up to `locks._AT_ONCE`
# others have their turns before it goes on.
_ASIDE_S, _MAX_ASIDE = 60.0, 16


@dataclass(slots=True)
class Candidate:
    """A source on its way through the stages, with the facts known so far.

    `kind` is its kind for a runner: a candidate's module, or the task (as JSON) run as one of
    `BASELINES`.
    """

    source: str
    kind: str = "candidate"
    language: Language = field(init=False)
    build: str | None = None
    rules: set[str] = field(default_factory=set)  # up to which outcomes of the checks were right
    margin: float | None = None  # the worst of its outcomes in the checks
    terms: int = 0  # of the longest sum that the reference took in them
    layouts: dict[str, tuple[TensorAt, ...]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # of a call, by case; to plan with
    custom: bool | None = None  # whether custom kernels make its outcome, as known so far
    setup_s: float | None = None  # of a process and its models, the longest so far

    def __post_init__(self) -> None:
        self.language = TORCH if self.is_ours else detect_language(self.source)

    @property
    def is_ours(self) -> bool:
        """Whether it is a baseline: trusted code, whose outputs are not judged."""
        return self.kind != "candidate"

    @property
    def compiles_late(self) -> bool:
        """Whether it has to be called before all of it is compiled."""
        return self.is_ours or self.language.compiles_late

    @property
    def wants_compiler(self) -> bool:
        """Whether its processes import PyTorch's compiler, which takes each of them seconds."""
        return self.kind.startswith("compile") or compiler.is_wanted_by(self.source)

    def build_key(self, device_class: str) -> str:
        """Identity of the result of a build on such a device.

        A source that names a folder of torch, as generated ones do, asks for another library in
        another environment, and each of its processes would build that anew.
        """
        known = versions()
        return framed_digest("build", self.kind, self.source, known["tvm_ffi"], known["compiler"],
                             known["python"], known["torch"], known["nvcc_flags"],
                             known["languages"], sys.prefix, device_class)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: the verdict on it, where its tensors were, their copies, wall seconds.

    `own` has the addresses of the outputs that lie in no input, and in no memory that all of the
    reference's calls return.
    """

    verdict: Judgement
    places: tuple[TensorAt, ...]
    own: frozenset[int]
    tensors: list[Tensor]
    seconds: float


class CandidateSession:
    """Launches a candidate's processes in the ways that the stages need.

    `call_s` is how many seconds one forward may take.
    """

    def __init__(
        self,
        device: Device,
        launcher: Launcher,
        builds: BuildCache,
        device_lock: DeviceLock,
        call_s: float,
    ) -> None:
        self.call_s = call_s
        self.device = device
        self.launcher = launcher
        self.builds = builds
        self._device_lock = device_lock

    @contextlib.contextmanager
    def building(self, candidate: Candidate, task: PreparedTask) -> Iterator[RunnerProcess]:
        """A process that has executed and compiled the candidate; for `keep`, and for its checks.

        Takes the lock by itself, and leaves it while the source is executed, which is when C++ is
        compiled, and while Triton compiles, if that disturbs no timing.
        """
        candidate.build = self.builds.finished(candidate.build_key(self.device.device_class))
        is_new = candidate.build is None
        start = partial(self.launched, candidate, task.cases)
        with self._under_lock(start) as runner:
            with self._lent_unless_aside():  # it stands still while another is timed
                runner.load(candidate.kind, candidate.source, BUILD_S, candidate.build, is_new)
            self._construct(runner, task.smallest)
            with self.on_device():
                self._exercise(runner, candidate, task, is_new)
            yield runner
            with self.unless_aside():
                runner.close()

    def keep(self, candidate: Candidate, runner: RunnerProcess) -> None:
        """Keep the process's build for others, before it sees inputs that decide anything.

        Raises:
            CandidateFault: it is too large.
        """
        if candidate.build is None:
            key = candidate.build_key(self.device.device_class)
            try:
                candidate.build = self.builds.keep(key, runner.folder)
            except BuildError as error:
                raise CandidateFault(Status.COMPILE_ERROR, str(error)) from error

    def compile(self, candidate: Candidate, task: PreparedTask) -> None:
        """Build it, and let its process go."""
        with self.building(candidate, task) as runner:
            self.keep(candidate, runner)

    def unless_aside(self) -> contextlib.AbstractContextManager[None]:
        """The lock, if work on the CPU's cores disturbs timing."""
        return contextlib.nullcontext() if self.device.compiles_aside else self.on_device()

    def _lent_unless_aside(self) -> contextlib.AbstractContextManager[None]:
        return (
            contextlib.nullcontext()
            if self.device.compiles_aside
            else self._device_lock.lock.lent()
        )

    def _under_lock(self, start: Callable[[], RunnerProcess]) -> RunnerProcess:
        with self.unless_aside():
            return start()

    def _construct(
        self, runner: RunnerProcess, case: PreparedCase, seconds: float = SETUP_S
    ) -> None:
        with self.on_device(), self.device.share(runner, case.arguments) as arguments:
            runner.construct(case.index, case.model_seed, arguments, seconds, case.conditions)

    def _exercise(
        self, runner: RunnerProcess, candidate: Candidate, task: PreparedTask, is_new: bool
    ) -> None:
        """Have kernels compiled that are only when they are first launched, on inputs of no use."""
        if not candidate.language.is_timed_on(self.device.kind) or not candidate.compiles_late:
            return
        aside = self._aside() if is_new and self.device.compiles_aside else None
        for case in task.timed if candidate.is_ours else task.cases:
            if case is not task.smallest:
                self._construct(runner, case)
            self._call_once(runner, case, aside)

    def _aside(self) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """Inside, other timings need not wait for kernels that are compiled, for a while."""
        start, before = time.monotonic(), itertools.count()

        def aside() -> contextlib.AbstractContextManager[None]:
            is_early = time.monotonic() - start < _ASIDE_S and next(before) < _MAX_ASIDE
            return self._device_lock.lock.let_go() if is_early else contextlib.nullcontext()

        return aside

    def _call_once(
        self,
        runner: RunnerProcess,
        case: PreparedCase,
        aside: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
    ) -> None:
        with self.on_device(), self.device.share(runner, case.block(-1, 1)) as inputs:
            runner.call(case.index, inputs, BUILD_S, aside=aside)
        runner.drop(BUILD_S)

    def launched(
        self,
        candidate: Candidate,
        cases: list[PreparedCase],
        needs: Needs = UNTIMED,
    ) -> RunnerProcess:
        """A process for the candidate, which has seen nothing of it yet; to be used in a `with`."""
        hidden = candidate.build is not None and not self.device.preforked
        readable = (str(candidate.build),) if hidden else ()
        is_tight = candidate.is_ours and needs is not UNTIMED  # where it compiles it may try more
        needed = trusted_bytes if is_tight else working_bytes
        tensors = needed(cases, self.device)
        if may_overlap(candidate.source):  # torch keeps blocks apart by stream
            tensors *= _STREAMS
        return self.launcher.start(
            candidate.language, readable, tensors + needs.block, needs.all_queues,
            needs.observed, compiles=candidate.wants_compiler,
        )  # fmt: skip

    def loaded(
        self,
        candidate: Candidate,
        cases: list[PreparedCase],
        stub: bool = False,
        needs: Needs = UNTIMED,
    ) -> RunnerProcess:
        """A process with the candidate's models of these cases; to be used in a `with`."""
        start = time.perf_counter()
        with self.unless_aside(), contextlib.ExitStack() as on_failure:
            runner = on_failure.enter_context(self.launched(candidate, cases, needs=needs))
            self.furnish(runner, candidate, cases, stub)
            on_failure.pop_all()
        candidate.setup_s = max(candidate.setup_s or 0.0, time.perf_counter() - start)
        return runner

    def furnish(
        self,
        runner: RunnerProcess,
        candidate: Candidate,
        cases: list[PreparedCase],
        stub: bool = False,
        seconds: float = SETUP_S,
    ) -> None:
        """Load the candidate's finished build into a process, and construct its models."""
        runner.load(candidate.kind, candidate.source, seconds, candidate.build, stub=stub)
        self.construct(runner, cases, seconds)
        if candidate.is_ours:  # the first call compiles, which takes its time
            for case in cases:
                self._call_once(runner, case)

    def construct(
        self, runner: RunnerProcess, cases: list[PreparedCase], seconds: float = SETUP_S
    ) -> None:
        """Have it make models of these cases anew."""
        for case in cases:
            self._construct(runner, case, seconds)

    def reference(self, task: PreparedTask, needs: Needs) -> RunnerProcess:
        """The same for the reference; its process alone gets the task's source."""
        tensors = trusted_bytes(task.timed, self.device) + needs.block
        start = partial(self.launcher.start, TORCH, tensors=tensors, all_queues=needs.all_queues)
        with self.unless_aside(), contextlib.ExitStack() as on_failure:
            runner = on_failure.enter_context(start())
            runner.load("reference", json.dumps(task.task.to_json()), SETUP_S)
            for case in task.timed:
                with self.on_device():
                    runner.construct(case.index, case.model_seed, None, SETUP_S, case.conditions)
            on_failure.pop_all()
        return runner

    def written(self, task: PreparedTask, variants: Sequence[str]) -> dict[str, Compiled | str]:
        """The compiled reference, by variant, or the reason for none; kept like a build.

        A few processes share the variants, as each takes seconds for imports. Of the device they
        have the models only, so if work on the CPU disturbs no timing, the lock is not held while
        they think.
        """
        text = json.dumps(task.task.to_json())
        about = versions()["torch"], self.device.device_class
        keys = {name: framed_digest("written 2", text, name, *about) for name in variants}
        count = writers(task.cases, self.device, len(variants))
        shares = [dict(list(keys.items())[at::count]) for at in range(count)]
        with ThreadPoolExecutor(count) as pool:
            made = [item for share in pool.map(self._written, repeat(task), shares)
                    for item in share.items()]  # fmt: skip
        found = dict(made)
        return {name: found[name] for name in variants}

    def _written(self, task: PreparedTask, keys: Mapping[str, str]) -> dict[str, Compiled | str]:
        """By one process; if a variant kills it, the rest by another."""
        done = {name: self.builds.finished(key) for name, key in keys.items()}
        reasons: dict[str, str] = {}
        left = [name for name in keys if not done[name]]
        while left:
            faults = self._write(task, {name: keys[name] for name in left})
            reasons |= {name: fault.feedback for name, fault in faults.items() if fault}
            left = left[len(faults) :]
        return {
            name: reasons[name] if name in reasons else _read(task, self.builds.path(key), name)
            for name, key in keys.items()
        }

    def _write(
        self, task: PreparedTask, keys: Mapping[str, str]
    ) -> dict[str, CandidateFault | None]:
        """Variants up to one that kills the process, with their errors; the others are kept."""
        held, lock = contextlib.ExitStack(), self._device_lock.lock
        faults: dict[str, CandidateFault | None] = {}
        try:
            size = compiling_bytes(task.cases, self.device)
            runner = held.enter_context(self.launcher.start(TORCH, tensors=size, compiles=True))
            with lock.shared():
                runner.load("reference", json.dumps(task.task.to_json()), SETUP_S)
                for case in task.cases:
                    runner.construct(case.index, case.model_seed, None, SETUP_S, case.conditions)
            for variant, key in keys.items():
                faults[variant] = None
                try:
                    for case in task.cases:
                        with self.unless_aside():
                            runner.write(case.index, case.outline, variant, BUILD_S)
                    self.builds.keep(key, runner.folder, compiler.folder_of(variant))
                except CandidateFault as fault:
                    faults[variant] = fault
                    if not runner.alive:
                        break
        except CandidateFault as fault:  # the reference itself
            return dict.fromkeys(keys, fault)
        finally:
            held.close()
        return faults

    @contextlib.contextmanager
    def interruptible(
        self, candidate: Candidate, cases: list[PreparedCase], stub: bool = False
    ) -> Iterator[RunnerProcess]:
        """The same as `loaded`; others may be timed whenever nothing is asked of it.

        Not if work on the CPU's cores disturbs timing: other judges of the host do not stop it.
        """
        start = partial(self.loaded, candidate, cases, stub)
        with self.unless_aside(), start() as runner:
            yield runner

    def observed(self, candidate: Candidate, case: PreparedCase, tool: tuple[str, ...]) -> str:
        """A tool's report on one call, for `tool_process.read`; in a separate process.

        Raises:
            CandidateFault: the candidate fails if it has not failed without the tool.
        """
        lock = self._device_lock.lock
        with (
            torch.no_grad(),  # which is a setting of each thread
            self.loaded(candidate, [case], needs=Needs(observed=True)) as runner,
            lock.shared(),
            self.device.share(runner, case.inputs("task", 1)) as inputs,
            lock.let_go(),
            lock.lent(),
        ):
            return runner.run_isolated(case.index, inputs, tool, 2 * tool_process.SECONDS)

    def on_device(self) -> contextlib.AbstractContextManager[None]:
        """The lock that all shared work on the device takes."""
        return self._device_lock.lock.shared()

    def hidden(self, make: Callable[[], Check]) -> Check:
        """Hidden inputs, made under the lock. The caller keeps them: they may not be stored.

        So nothing of gigabytes should be held that is no longer of use.
        """
        with self.on_device():
            return make()

    def outcome(
        self,
        runner: RunnerProcess,
        case: PreparedCase,
        hidden: Check,
        limit_s: float | None = None,
        by: Callable[..., Judgement] = judge,
    ) -> Outcome:
        """One call on hidden inputs, its output copied and judged; takes the lock."""
        with self.on_device():
            return self._outcome(runner, case, hidden, limit_s or self.call_s, by)

    def _outcome(
        self,
        runner: RunnerProcess,
        case: PreparedCase,
        hidden: Check,
        limit_s: float,
        by: Callable[..., Judgement],
    ) -> Outcome:
        with self.device.share(runner, hidden.inputs) as inputs:
            start = time.perf_counter()
            output = runner.call(case.index, inputs, limit_s)
            seconds = time.perf_counter() - start
            self.device.require_modest(runner)
            aliased = case.effects.aliased
            if output_snapshot.same_structure(output, hidden.expected):
                tensors = output_snapshot.take(self.device, runner, output, inputs, aliased)
            else:
                tensors = output_snapshot.described(output)
            if changed := case.effects.changed:
                at = output.inputs_at
                tensors += take_changes(self.device, runner, inputs, at, changed)
            elif self.device.inputs_changed(runner, inputs, output.inputs_at):
                raise CandidateFault(Status.MUTATED_INPUT, "forward wrote to its inputs")
            new = [at for n, at in enumerate(output.tensors) if n not in case.effects.kept]
            own = output_snapshot.own_memory(self.device, runner, new, inputs)
        spec = output_snapshot.spec_of(output)
        verdict = by(case.case, tensors, spec, hidden.expected, hidden.tree())
        return Outcome(verdict, output.tensors, own, tensors, seconds)


def _read(task: PreparedTask, folder: str, variant: str) -> Compiled | str:
    cases = {case.index: case.case for case in task.cases}
    try:
        return compiler.read(folder, cases, variant)
    except CandidateFault as fault:
        return fault.feedback
