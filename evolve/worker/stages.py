"""The ladder that a candidate climbs, up to where it is timed.

Each stage raises `CandidateFault` or leaves something for the next. There is a process that
compiles, and sees no inputs but those of the smoke test, which decide nothing later; one that is
checked and observed; and one for each run without the candidate's kernels.
"""

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from evolve.core.evaluation import Fidelity, Label, Status
from evolve.worker.budget import Judgement, judge, suite_verdict, worst
from evolve.worker.faults import CandidateFault
from evolve.worker.labels import disowned
from evolve.worker.probes import custom_label
from evolve.worker.process import RunnerProcess
from evolve.worker.proof import OwnCode, Proof, library_labels, prove, read_kernels
from evolve.worker.warm import OBSERVED, STUBBED, TRAPPED, Check, WarmCase, WarmTask, plan
from evolve.worker.window import size_in_bytes
from evolve.worker.wire import TensorAt
from evolve.worker.workshop import BUILD_S, Candidate, Outcome, Workshop

_REPEATS = 3  # of the last inputs, where calls are cheap; else one
_CHEAP_S = 0.05


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


@dataclass(frozen=True, slots=True)
class Probe:
    """A run with something taken away: was it right (None: out of time), what was missed first."""

    right: bool | None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Trapped:
    """Runs of some cases without ATen compute, up to one that is not right."""

    cases: Sequence[WarmCase]
    probes: Sequence[Probe]

    @property
    def all_right(self) -> bool:
        return all(probe.right for probe in self.probes)


def trap(workshop: Workshop, runner: RunnerProcess, task: WarmTask) -> Trapped:
    """The smallest case and one of those that are timed, at the end of the checks' process.

    On inputs that nobody has seen, or what was kept from an earlier call could pass for work done.
    After one that is not right no other says anything.
    """
    timed = [case for case in task.timed if case is not task.smallest]
    cases = [task.smallest, *random.sample(timed, min(1, len(timed)))]
    probes: list[Probe] = []
    for case in cases:
        probes.append(_probed(workshop, runner, case, TRAPPED, trap=True))
        if not probes[-1].right:
            break
    return Trapped(cases, probes)


def probe_custom(
    workshop: Workshop, candidate: Candidate, trapped: Trapped, known: Sequence[Label]
) -> tuple[bool | None, tuple[Label, ...]]:
    """Whether custom kernels make the outcome, and what was found that speaks for or against it.

    The same cases are run without the candidate's kernels, in a process of their own. None where a
    run did not end in time. `known` are labels found so far.
    """
    labels = dict.fromkeys(library_labels(candidate.build, workshop.device.has_profiler))
    customs: list[bool | None] = [not labels and not disowned(known)]
    for at, case in enumerate(trapped.cases):
        taken = trapped.probes[min(at, len(trapped.probes) - 1)]
        left = _stubbed(workshop, candidate, case)
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
        with (
            workshop.on_device(),
            workshop.device.share(runner, case.inputs("task", OBSERVED)) as inputs,
        ):
            runner.open_profiler(BUILD_S)
            text = runner.observe(case.index, inputs, workshop.call_s)
    except CandidateFault:
        return None
    return prove(read_kernels(text), OwnCode(candidate.build))


def _stubbed(workshop: Workshop, candidate: Candidate, case: WarmCase) -> Probe:
    """A case without the candidate's kernels."""
    with contextlib.ExitStack() as ends:
        try:
            runner = ends.enter_context(workshop.seated(candidate, [case], stub=True))
        except CandidateFault as fault:
            return _failed(fault)
        return _probed(workshop, runner, case, STUBBED, excuse=False)


def _probed(
    workshop: Workshop,
    runner: RunnerProcess,
    case: WarmCase,
    number: int,
    trap: bool = False,
    excuse: bool = True,
) -> Probe:
    try:
        hidden = workshop.hidden(partial(case.check, "task", number))
        by = partial(judge, explain=False, excuse=excuse)
        outcome = workshop.outcome(runner, case, hidden, trap, by=by)
    except CandidateFault as fault:
        return _failed(fault)
    return Probe(outcome.verdict.status is Status.CORRECT)


def _failed(fault: CandidateFault) -> Probe:
    right = None if fault.status is Status.TIMEOUT else False
    return Probe(right, _operation(fault.feedback))


def _operation(text: str) -> str | None:
    return next((word for word in text.split() if "::" in word), None)
