"""The ladder that a candidate climbs, up to where it is timed.

Each stage raises `CandidateFault` or leaves something for the next. There is a process that
compiles, and sees no inputs but those of the smoke test, which decide nothing later; one that is
checked and observed; and one for each run without the candidate's kernels.
"""

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from evolve.core.compiled import Compiled
from evolve.core.digest import framed_digest
from evolve.core.evaluation import Fidelity, Label, Status
from evolve.core.program import Language, detect_language
from evolve.worker import compiler, custody
from evolve.worker.budget import Judgement, judge, suite_verdict, worst
from evolve.worker.buildcache import BuildCache
from evolve.worker.device import Device
from evolve.worker.environment import versions
from evolve.worker.faults import CandidateFault
from evolve.worker.labels import disowned
from evolve.worker.launcher import Launcher
from evolve.worker.probes import custom_label
from evolve.worker.process import RunnerProcess
from evolve.worker.proof import OwnCode, Proof, library_labels, prove, read_kernels
from evolve.worker.seats import Seats
from evolve.worker.warm import (
    OBSERVED,
    STUBBED,
    TRAPPED,
    Check,
    WarmCase,
    WarmTask,
    plan,
    working_bytes,
)
from evolve.worker.window import size_in_bytes
from evolve.worker.wire import TensorAt

BUILD_S = 120.0
SETUP_S = 30.0
_REPEATS = 3  # of the last inputs, where calls are cheap; else one
_CHEAP_S = 0.05


@dataclass(slots=True)
class Candidate:
    """A source on its way through the stages, with what is known of it so far.

    `kind` is what a runner makes of it: a candidate's module, or the task (as JSON) run as one of
    `BASELINES`.
    """

    source: str
    kind: str = "candidate"
    language: Language = field(init=False)
    build: str | None = None
    margin: float | None = None  # the worst of its outcomes in the checks
    layouts: dict[str, tuple[TensorAt, ...]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # of a call, by case; to plan with
    setup_s: float | None = None  # of a process and its models, the longest so far

    def __post_init__(self) -> None:
        self.language = Language.TORCH if self.is_ours else detect_language(self.source)

    @property
    def is_ours(self) -> bool:
        """Whether it is a baseline: trusted code, whose outputs are not judged."""
        return self.kind != "candidate"

    @property
    def compiles_late(self) -> bool:
        """Whether it has to be called before all of it is compiled."""
        return self.is_ours or self.language.compiles_late

    @property
    def key(self) -> str:
        """Identity of what a build of it would give."""
        known = versions()
        return framed_digest("build", self.kind, self.source, known["tvm_ffi"], known["compiler"],
                             known["python"], known["torch"], known["nvcc_flags"])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: the verdict on it, where its tensors were, their copies, wall seconds."""

    verdict: Judgement
    places: tuple[TensorAt, ...]
    tensors: list[Tensor]
    seconds: float


class Workshop:
    """Launches a candidate's processes in the ways that the stages need.

    `call_s` is how many seconds one forward may take.
    """

    def __init__(
        self, device: Device, launcher: Launcher, builds: BuildCache, seats: Seats, call_s: float
    ) -> None:
        self.call_s = call_s
        self.device = device
        self.launcher = launcher
        self.builds = builds
        self._seats = seats

    @contextlib.contextmanager
    def building(self, candidate: Candidate, task: WarmTask) -> Iterator[RunnerProcess]:
        """A process that has executed and compiled the candidate; what it built is kept at the end.

        It sees none of the inputs that decide anything. Takes the lock by itself, and leaves it
        while the source is executed, which is when C++ is compiled, where that disturbs no timing.
        """
        key = framed_digest(candidate.key, self.device.device_class)
        candidate.build = self.builds.finished(key)
        fresh = None if candidate.build else self.builds.begin(key)
        try:
            writable = (fresh,) if fresh else ()
            start = partial(self.launched, candidate, task.cases, writable)
            with self._unless_aside(), self._seats.beside(start) as runner:
                runner.load(candidate.kind, candidate.source, BUILD_S, fresh or candidate.build,
                            may_build=fresh is not None)  # fmt: skip
                with self.on_device():
                    self._construct(runner, task.smallest)
                    self._exercise(runner, candidate, task)
                yield runner
            if fresh:
                candidate.build = self.builds.commit(key, fresh)
                fresh = None
        finally:
            if fresh:
                self.builds.discard(fresh)

    def compile(self, candidate: Candidate, task: WarmTask) -> None:
        """Build it, and let its process go."""
        with self.building(candidate, task):
            pass

    def _unless_aside(self) -> contextlib.AbstractContextManager[None]:
        """The lock, where work on the CPU's cores disturbs timing."""
        return contextlib.nullcontext() if self.device.compiles_aside else self.on_device()

    def _construct(self, runner: RunnerProcess, case: WarmCase, seconds: float = SETUP_S) -> None:
        with self.device.share(case.arguments) as arguments:
            runner.construct(case.index, case.model_seed, arguments, seconds)

    def _exercise(self, runner: RunnerProcess, candidate: Candidate, task: WarmTask) -> None:
        """Have kernels compiled that are only when they are first launched, on inputs of no use."""
        if not self.device.can_time(candidate.language) or not candidate.compiles_late:
            return
        for case in task.timed if candidate.is_ours else task.cases:
            if case is not task.smallest:
                self._construct(runner, case)
            self._call_once(runner, case)

    def _call_once(self, runner: RunnerProcess, case: WarmCase) -> None:
        with self.device.share(case.block(-1, 1)) as inputs:
            runner.call(case.index, inputs, BUILD_S)

    def launched(
        self,
        candidate: Candidate,
        cases: list[WarmCase],
        writable: tuple[str, ...] = (),
        block: int = 0,
    ) -> RunnerProcess:
        """A process for the candidate, which has seen nothing of it yet; to be used in a `with`.

        `block` is what the outputs of a timed block take, in bytes.
        """
        hidden = candidate.build is not None and not self.device.spares
        readable = (str(candidate.build),) if hidden else ()
        tensors = working_bytes(cases) + block
        return self.launcher.start(candidate.language, writable, readable, tensors)

    def loaded(
        self, candidate: Candidate, cases: list[WarmCase], stub: bool = False, block: int = 0
    ) -> RunnerProcess:
        """A process with the candidate's models of these cases; to be used in a `with`."""
        start = time.perf_counter()
        runner = self.launched(candidate, cases, block=block)
        with contextlib.ExitStack() as on_failure:
            on_failure.enter_context(runner)
            self.furnish(runner, candidate, cases, stub)
            on_failure.pop_all()
        candidate.setup_s = max(candidate.setup_s or 0.0, time.perf_counter() - start)
        return runner

    def furnish(
        self,
        runner: RunnerProcess,
        candidate: Candidate,
        cases: list[WarmCase],
        stub: bool = False,
        seconds: float = SETUP_S,
    ) -> None:
        """Load the candidate's finished build into a process, and construct its models."""
        runner.load(candidate.kind, candidate.source, seconds, candidate.build, stub=stub)
        for case in cases:
            self._construct(runner, case, seconds)
            if candidate.is_ours:  # the first call compiles, which takes its time
                self._call_once(runner, case)

    def reference(self, task: WarmTask, block: int) -> RunnerProcess:
        """The same for the reference; its process alone gets the task's source."""
        tensors = working_bytes(task.timed) + block
        runner = self.launcher.start(Language.TORCH, tensors=tensors)
        with contextlib.ExitStack() as on_failure:
            on_failure.enter_context(runner)
            runner.load("reference", json.dumps(task.task.to_json()), SETUP_S)
            for case in task.timed:
                runner.construct(case.index, case.model_seed, None, SETUP_S)
            on_failure.pop_all()
        return runner

    def written(self, task: WarmTask, variant: str) -> Compiled:
        """What the compiler makes of the reference, for every case; kept like a build.

        Of the device it needs the inputs only, so where work on the CPU disturbs no timing, the
        lock is not held while it thinks.

        Raises:
            CandidateFault: the reference cannot be compiled so; the message says why.
        """
        text = json.dumps(task.task.to_json())
        key = framed_digest("written", text, variant, versions()["torch"], self.device.device_class)
        done = self.builds.finished(key)
        if done is None:
            folder = self.builds.begin(key)
            try:
                self._write(task, variant, folder)
                done = self.builds.commit(key, folder)
            finally:
                self.builds.discard(folder)
        return compiler.read(done, {case.index: case.case for case in task.cases}, variant)

    def _write(self, task: WarmTask, variant: str, folder: str) -> None:
        held, lock = contextlib.ExitStack(), self._seats.lock
        try:
            with lock.shared():
                size = working_bytes(task.cases)
                runner = held.enter_context(
                    self.launcher.start(Language.TORCH, (folder,), tensors=size)
                )
                runner.load("reference", json.dumps(task.task.to_json()), SETUP_S)
                inputs = {}
                for case in task.cases:
                    runner.construct(case.index, case.model_seed, None, SETUP_S)
                    inputs[case.index] = held.enter_context(self.device.share(case.block(-1, 1)))
            for case in task.cases:
                with self._unless_aside():
                    runner.write(case.index, inputs[case.index], variant, folder, BUILD_S)
        finally:
            with lock.shared():
                held.close()

    @contextlib.contextmanager
    def seated(
        self, candidate: Candidate, cases: list[WarmCase], stub: bool = False
    ) -> Iterator[RunnerProcess]:
        """The same as `loaded`; others may be timed whenever nothing is asked of it.

        Not where work on the CPU's cores disturbs timing: other judges of the host do not stop it.
        """
        start = partial(self.loaded, candidate, cases, stub)
        with self._unless_aside(), self._seats.beside(start) as runner:
            yield runner

    def on_device(self) -> contextlib.AbstractContextManager[None]:
        """The lock that all work on the device takes, while nobody has it alone."""
        return self._seats.lock.shared()

    def hidden(self, make: Callable[[], Check]) -> Check:
        """Hidden inputs, made under the lock. Whoever has them keeps them: they may not be stored.

        So nothing of gigabytes should be held that is no longer of use.
        """
        with self.on_device():
            return make()

    def outcome(
        self,
        runner: RunnerProcess,
        case: WarmCase,
        hidden: Check,
        trap: bool = False,
        limit_s: float | None = None,
    ) -> Outcome:
        """One call on hidden inputs, its output taken into custody and judged; takes the lock."""
        with self.on_device():
            return self._outcome(runner, case, hidden, trap, limit_s or self.call_s)

    def _outcome(
        self, runner: RunnerProcess, case: WarmCase, hidden: Check, trap: bool, limit_s: float
    ) -> Outcome:
        with self.device.share(hidden.inputs) as inputs:
            start = time.perf_counter()
            output = runner.call(case.index, inputs, limit_s, trap)
            seconds = time.perf_counter() - start
            if custody.same_structure(output, hidden.expected):
                tensors = custody.take(self.device, runner, output, inputs)
            else:
                tensors = custody.described(output)
            if self.device.inputs_changed(runner, inputs, output.inputs_at):
                raise CandidateFault(Status.MUTATED_INPUT, "forward wrote to its inputs")
        spec = custody.spec_of(output)
        verdict = judge(case.case, tensors, spec, hidden.expected, hidden.tree())
        return Outcome(verdict, output.tensors, tensors, seconds)


def smoke(workshop: Workshop, runner: RunnerProcess, candidate: Candidate, task: WarmTask) -> None:
    """The smallest case once, where it was compiled: the cheapest way to fail.

    On inputs that decide nothing later: what it builds there it may take along.
    """
    case = task.smallest
    hidden = workshop.hidden(partial(case.block_check, -1, 0, 1))
    outcome = workshop.outcome(runner, case, hidden)
    _require(candidate, outcome.verdict, case, "task")


def check(
    workshop: Workshop,
    runner: RunnerProcess,
    candidate: Candidate,
    task: WarmTask,
    fidelity: Fidelity,
) -> bool:
    """All cases on all hidden inputs, and the last of them again; gives the suite's own verdict.

    `runner` has the candidate's models of all cases.
    """
    suits = [_check_case(workshop, runner, candidate, case, fidelity) for case in task.cases]
    return all(suits)


def _check_case(
    workshop: Workshop,
    runner: RunnerProcess,
    candidate: Candidate,
    case: WarmCase,
    fidelity: Fidelity,
) -> bool:
    """Of what may take gigabytes, no more is held than the call under way needs."""
    *others, last = plan(case, fidelity)
    suits = [_checked(workshop, runner, candidate, case, *one).suite for one in others]
    checked = _checked(workshop, runner, candidate, case, *last)
    places = checked.places
    for _ in range(_REPEATS):
        again = workshop.outcome(runner, case, checked.hidden)
        _require_repeatable(case.case.name, places, again)
        candidate.margin = worst(candidate.margin, again.verdict.margin)
        places, seconds = again.places, again.seconds
        del again
        if seconds > _CHEAP_S:
            break
    candidate.layouts[case.case.name] = places
    candidate.seconds[case.case.name] = seconds
    return all(suits) and checked.suite


@dataclass(frozen=True, slots=True)
class _Checked:
    """Where a right outcome on hidden inputs lay, and whether the suite's own rule takes it too."""

    hidden: Check
    places: tuple[TensorAt, ...]
    suite: bool


def _checked(
    workshop: Workshop,
    runner: RunnerProcess,
    candidate: Candidate,
    case: WarmCase,
    family: str,
    number: int,
) -> _Checked:
    hidden = workshop.hidden(partial(case.check, family, number))
    outcome = workshop.outcome(runner, case, hidden)
    _require(candidate, outcome.verdict, case, family)
    suite = True
    if family == "task":
        with workshop.on_device():
            suite = suite_verdict(outcome.tensors, hidden.expected)
    return _Checked(hidden, outcome.places, suite)


def _require(candidate: Candidate, verdict: Judgement, case: WarmCase, family: str) -> None:
    if verdict.status is not Status.CORRECT:
        where = f"case {case.case.name}, inputs of family {family}"
        raise CandidateFault(verdict.status, f"{where}: {verdict.feedback}")
    candidate.margin = worst(candidate.margin, verdict.margin)


def _require_repeatable(case: str, first: tuple[TensorAt, ...], again: Outcome) -> None:
    if again.verdict.status is not Status.CORRECT:
        raise CandidateFault(
            Status.NONDETERMINISTIC,
            f"case {case}: right at first, wrong on the same inputs again: "
            f"{again.verdict.feedback}",
        )
    places = {at.address for at in first if size_in_bytes(at)}
    if places & {at.address for at in again.places}:
        raise CandidateFault(
            Status.ALIASED,
            f"case {case}: two calls returned the same memory; allocate a new output",
        )


def probe_custom(
    workshop: Workshop,
    runner: RunnerProcess,
    candidate: Candidate,
    task: WarmTask,
    known: Sequence[Label],
) -> tuple[bool | None, tuple[Label, ...]]:
    """Whether custom kernels make the outcome, and what was found that speaks for or against it.

    Two cases are run without ATen compute, at the end of the checks' process, and without the
    kernels, in a process of their own: the smallest, and one of those that are timed. None where a
    run did not end in time. `known` are labels found so far.
    """
    labels = dict.fromkeys(library_labels(candidate.build, workshop.device.has_profiler))
    customs: list[bool | None] = [not labels and not disowned(known)]
    timed = [case for case in task.timed if case is not task.smallest]
    cases = [task.smallest, *random.sample(timed, min(1, len(timed)))]
    # Inputs that nobody has seen, or what was kept from an earlier call could pass for work done.
    trapped = _trapped(workshop, runner, cases)
    for at, case in enumerate(cases):
        taken, left = trapped[min(at, len(trapped) - 1)], _stubbed(workshop, candidate, case)
        if taken.right is None or left.right is None:
            customs.append(None)
            continue
        custom, found = custom_label(taken.right, taken.operation, left.right)
        customs.append(custom)
        labels |= dict.fromkeys(found)
    verdict = False if False in customs else None if None in customs else True
    return verdict, tuple(labels)


def prove_kernels(
    workshop: Workshop, runner: RunnerProcess, candidate: Candidate, task: WarmTask
) -> Proof | None:
    """Which kernels ran on the first timed case, where it was checked; None if nobody knows."""
    case = task.timed[0]
    try:
        runner.open_profiler(BUILD_S)
        with workshop.on_device():
            with workshop.device.share(case.inputs("task", OBSERVED)) as inputs:
                text = runner.observe(case.index, inputs, workshop.call_s)
    except CandidateFault:
        return None
    return prove(read_kernels(text), OwnCode(candidate.build))


@dataclass(frozen=True, slots=True)
class _Probe:
    """A run with something taken away: was it right (None: out of time), what was missed first."""

    right: bool | None
    operation: str | None = None


def _trapped(workshop: Workshop, runner: RunnerProcess, cases: Sequence[WarmCase]) -> list[_Probe]:
    """Each case without ATen compute, up to one that is not right: what follows says nothing."""
    probes: list[_Probe] = []
    for case in cases:
        probes.append(_probed(workshop, runner, case, TRAPPED, trap=True))
        if not probes[-1].right:
            break
    return probes


def _stubbed(workshop: Workshop, candidate: Candidate, case: WarmCase) -> _Probe:
    """A case without the candidate's kernels."""
    with contextlib.ExitStack() as ends:
        try:
            runner = ends.enter_context(workshop.seated(candidate, [case], stub=True))
        except CandidateFault as fault:
            return _failed(fault)
        return _probed(workshop, runner, case, STUBBED)


def _probed(
    workshop: Workshop, runner: RunnerProcess, case: WarmCase, number: int, trap: bool = False
) -> _Probe:
    try:
        hidden = workshop.hidden(partial(case.check, "task", number))
        outcome = workshop.outcome(runner, case, hidden, trap)
    except CandidateFault as fault:
        return _failed(fault)
    return _Probe(outcome.verdict.status is Status.CORRECT)


def _failed(fault: CandidateFault) -> _Probe:
    right = None if fault.status is Status.TIMEOUT else False
    return _Probe(right, _operation(fault.feedback))


def _operation(text: str) -> str | None:
    return next((word for word in text.split() if "::" in word), None)
