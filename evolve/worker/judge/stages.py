"""The ladder that a candidate climbs, up to where it is timed.

Each stage raises `CandidateFault` or leaves something for the next. All of them are asked of one
process: it compiles, and until its build is kept it sees no inputs but those of the smoke test,
which decide nothing later; then it is checked and observed; last it runs without the candidate's
kernels.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from evolve.core.evaluation import Label, Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.correctness.compare import Judgement, judge, judge_by_suite, worst
from evolve.worker.correctness.non_finite import judge_pattern, label_of
from evolve.worker.evidence import torch_share
from evolve.worker.evidence.static_checks import disowned
from evolve.worker.evidence.torch_share import Share
from evolve.worker.ipc.messages import TensorAt
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.reference.task_file import NAN_EQUAL
from evolve.worker.runner.profiling import (
    KernelProfile,
    OwnCode,
    library_labels,
    profile_of,
    read_kernels,
)
from evolve.worker.session.candidate_session import BUILD_S, Candidate, CandidateSession, Outcome
from evolve.worker.session.plan import Plan
from evolve.worker.session.prepared_task import (
    OBSERVED,
    STUBBED,
    TRAPPED,
    Check,
    PreparedCase,
    PreparedTask,
    inputs_to_check,
)
from evolve.worker.timing.reference_cost import Cost

_REPEATS = 3  # of the last inputs, where calls are cheap; else one
_CHEAP_S = 0.05
_NON_FINITE_S, _NON_FINITE_CALLS = 2.0, 20.0  # of a call on NaN: seconds, and usual calls beside
_BY_VALUES = (  # faults that values of inputs may cause by themselves
    Status.RUNTIME_EXCEPTION, Status.ILLEGAL_ACCESS, Status.ASSERT, Status.TIMEOUT, Status.KILLED
)  # fmt: skip
DECOY = "decoy_kernel"
EQUAL_UP_TO = "equal_up_to"


def smoke(
    session: CandidateSession, runner: RunnerProcess, candidate: Candidate, task: PreparedTask
) -> None:
    """The smallest case once, if it was compiled: the cheapest way to fail.

    On inputs that decide nothing later: it may keep builds from there.
    """
    case = task.smallest
    hidden = session.hidden(partial(case.block_check, -1, 0, 1))
    outcome = session.outcome(runner, case, hidden)
    _require(candidate, outcome.verdict, case, "task")


def check(
    session: CandidateSession,
    runner: RunnerProcess,
    candidate: Candidate,
    task: PreparedTask,
    plan: Plan,
) -> bool:
    """All cases on all hidden inputs, and the last of them again; gives the suite's own verdict.

    `runner` has the candidate's models of all cases.
    """
    suits = [_check_case(session, runner, candidate, case, plan) for case in task.cases]
    return all(suits)


def _check_case(
    session: CandidateSession,
    runner: RunnerProcess,
    candidate: Candidate,
    case: PreparedCase,
    plan: Plan,
) -> bool:
    """Calls may take gigabytes: only the current call's memory is held."""
    *others, last = inputs_to_check(case, plan)
    suits = [_checked(session, runner, candidate, case, *one).suite for one in others]
    checked = _checked(session, runner, candidate, case, *last)
    places, own = checked.places, checked.own
    for _ in range(_REPEATS):
        again = session.outcome(runner, case, checked.hidden)
        _require_repeatable(case.case.name, own, again)
        candidate.margin = worst(candidate.margin, again.verdict.margin)
        places, own, seconds = again.places, again.own, again.seconds
        del again
        if seconds > _CHEAP_S:
            break
    candidate.layouts[case.case.name] = places
    candidate.seconds[case.case.name] = seconds
    return all(suits) and checked.suite


def check_non_finite(
    session: CandidateSession, runner: RunnerProcess, candidate: Candidate, task: PreparedTask
) -> list[Label]:
    """One call of the smallest case on inputs with NaN and infinities; how its outcome differs.

    The last of the process, unless it is run without kernels: the values may end it.

    Raises:
        CandidateFault: it differs, and the task says that it must not.
    """
    case = task.smallest
    with session.on_device():
        check = case.non_finite()
    if check is None:
        return []
    limit_s = min(
        session.call_s, _NON_FINITE_S + _NON_FINITE_CALLS * candidate.seconds[case.case.name]
    )
    try:
        outcome = session.outcome(runner, case, check, limit_s=limit_s, by=judge_pattern)
        verdict = outcome.verdict
    except CandidateFault as fault:
        if fault.status not in _BY_VALUES:
            raise
        verdict = Judgement(fault.status, fault.feedback)
        if fault.status is Status.TIMEOUT:
            with session.unless_aside():
                runner.close()  # it does not answer
        with session.on_device():
            session.device.require_health()
    if verdict.status is Status.CORRECT:
        return []
    label = label_of(case.case.name, verdict)
    if case.case.nan == NAN_EQUAL:
        raise CandidateFault(verdict.status, label.evidence)
    return [label]


@dataclass(frozen=True, slots=True)
class _Checked:
    """The place of a right outcome on hidden inputs, and the verdict of the suite's own rule."""

    hidden: Check
    places: tuple[TensorAt, ...]
    own: frozenset[int]
    suite: bool


def _checked(
    session: CandidateSession,
    runner: RunnerProcess,
    candidate: Candidate,
    case: PreparedCase,
    family: str,
    number: int,
) -> _Checked:
    hidden = session.hidden(partial(case.check, family, number))
    outcome = session.outcome(runner, case, hidden)
    _require(candidate, outcome.verdict, case, family)
    candidate.terms = max(candidate.terms, hidden.expected.reduction)
    suite = True
    if family == "task":
        with session.on_device():
            suite = judge_by_suite(case.case, outcome.tensors, hidden.expected, hidden.tree())
    return _Checked(hidden, outcome.places, outcome.own, suite)


def _require(candidate: Candidate, verdict: Judgement, case: PreparedCase, family: str) -> None:
    if verdict.status is not Status.CORRECT:
        where = f"case {case.case.name}, inputs of family {family}"
        hints = case.effects.hints if verdict.status is Status.WRONG_VALUE else ()
        said = "; ".join((verdict.feedback, *hints))
        raise CandidateFault(verdict.status, f"{where}: {said}")
    candidate.margin = worst(candidate.margin, verdict.margin)
    candidate.rules.update(verdict.rules)


def _require_repeatable(case: str, first: frozenset[int], again: Outcome) -> None:
    if again.verdict.status is not Status.CORRECT:
        raise CandidateFault(
            Status.NONDETERMINISTIC,
            f"case {case}: right at first, wrong on the same inputs again: "
            f"{again.verdict.feedback}",
        )
    if first & again.own:
        raise CandidateFault(
            Status.ALIASED,
            f"case {case}: two calls returned the same memory; allocate a new output",
        )


@dataclass(frozen=True, slots=True)
class Counted:
    """A run in which torch's work was counted: was it right (None: out of time), and its share."""

    case: PreparedCase
    right: bool | None
    share: Share = torch_share.NOTHING

    @property
    def is_own(self) -> bool | None:
        """Whether it speaks for the candidate's own work; None if that is not known."""
        return self.right and self.share.is_small

    def labels(self) -> list[Label]:
        """The findings."""
        if self.right is False:
            return [Label("wrong_when_counted", f"case {self.case.case.name}: on new inputs")]
        label = self.share.label(self.case.case.name)
        return [label] if label else []


@dataclass(frozen=True, slots=True)
class Probed:
    """The cases that are probed, and the runs of those that are timed, up to one that decides."""

    cases: Sequence[PreparedCase]
    runs: Sequence[Counted]

    @property
    def may_be_custom(self) -> bool:
        """Whether all of the runs speak for it."""
        return all(run.is_own for run in self.runs)


def count_torch(
    session: CandidateSession,
    runner: RunnerProcess,
    task: PreparedTask,
    cost: Callable[[PreparedTask, PreparedCase], Cost],
) -> Probed:
    """How much of the work torch does, after the checks.

    In the smallest case and one of those that are timed. An untimed case gains nothing, and may be
    so small that the last step of a kernel is much of it: there only the stubbed run counts.

    On fresh inputs, or results kept from an earlier call could pass for work done.
    After a run that decides no other says anything.

    Args:
        session: Where calls are judged.
        runner: That has the candidate's models of all cases.
        task: Of the cases.
        cost: The work of the reference in a case; called if torch has done some of it.
    """
    others = [case for case in task.timed if case is not task.smallest]
    cases = [task.smallest, *random.sample(others, min(1, len(others)))]
    runs: list[Counted] = []
    for case in cases:
        if case.case.timed:
            runs.append(_counted(session, runner, case, partial(cost, task, case)))
            if not runs[-1].is_own:
                break
    return Probed(cases, runs)


def _counted(
    session: CandidateSession, runner: RunnerProcess, case: PreparedCase, cost: Callable[[], Cost]
) -> Counted:
    right = _right(session, runner, case, TRAPPED, trap=True)
    if not right:
        return Counted(case, right)
    try:
        account = torch_share.read(runner.account(session.call_s))
    except CandidateFault:
        account = None
    if account is None:
        return Counted(case, right, torch_share.UNREADABLE)
    return Counted(
        case, right, torch_share.share_of(account, cost()) if account else torch_share.NOTHING
    )


def probe_custom(
    session: CandidateSession,
    runner: RunnerProcess,
    candidate: Candidate,
    probed: Probed,
    known: Sequence[Label],
    plan: Plan,
) -> tuple[bool | None, tuple[Label, ...]]:
    """Whether custom kernels make the outcome, with the evidence for and against.

    The work is custom only if torch does little of it, and the outcome is wrong without the
    candidate's kernels: the same cases are run so, the last that is asked of the checks' process.
    In a verification a fresh process is asked: a program can tell that it is loaded again, and give
    wrong outcomes then. None if a run did not end in time. `known` are labels found so far.
    """
    labels = dict.fromkeys(library_labels(candidate.build, session.device.has_profiler))
    customs: list[bool | None] = [not labels and not disowned(known)]
    for run in probed.runs:
        customs.append(run.is_own)
        labels |= dict.fromkeys(run.labels())
    stubbed = _stubbed_apart if plan.is_final else _stubbed
    for right in stubbed(session, runner, candidate, probed.cases):
        customs.append(None if right is None else not right)
        if right:
            labels[Label(DECOY, "the outcome stays right when custom kernels do nothing")] = None
    verdict = False if False in customs else None if None in customs else True
    return verdict, tuple(labels)


def _stubbed(
    session: CandidateSession,
    runner: RunnerProcess,
    candidate: Candidate,
    cases: Sequence[PreparedCase],
) -> list[bool | None]:
    """Whether cases are right without the candidate's kernels, up to one that does not end.

    A fresh process is asked if the source cannot be loaded twice, and if an outcome is right:
    leftovers of the first load may have made it, such as operators, which have one name each.
    """
    with contextlib.suppress(CandidateFault):
        if runner.alive:
            session.furnish(runner, candidate, list(cases), stub=True)
            found = _without_kernels(session, runner, cases)
            if True not in found:
                return found
    return _stubbed_apart(session, runner, candidate, cases)


def _stubbed_apart(
    session: CandidateSession,
    runner: RunnerProcess,
    candidate: Candidate,
    cases: Sequence[PreparedCase],
) -> list[bool | None]:
    """The same, asked of a fresh process once `runner` has ended."""
    with session.unless_aside():
        runner.close()  # its memory may be needed
    try:
        with session.interruptible(candidate, list(cases), stub=True) as fresh:
            return _without_kernels(session, fresh, cases)
    except CandidateFault as fault:
        return [_failed(fault)]


def _without_kernels(
    session: CandidateSession, runner: RunnerProcess, cases: Sequence[PreparedCase]
) -> list[bool | None]:
    found: list[bool | None] = []
    for case in cases:
        found.append(_right(session, runner, case, STUBBED, excuse=False))
        if found[-1] is None:
            break
    return found


def _right(
    session: CandidateSession,
    runner: RunnerProcess,
    case: PreparedCase,
    number: int,
    trap: bool = False,
    excuse: bool = True,
) -> bool | None:
    """Whether a call is right on hidden inputs `number`; None if it does not end in time."""
    try:
        hidden = session.hidden(partial(case.check, "task", number))
        by = partial(judge, explain=False, excuse=excuse)
        if trap:  # without the device: it takes a tenth of a second
            runner.trap_torch(session.call_s)
        outcome = session.outcome(runner, case, hidden, by=by)
    except CandidateFault as fault:
        return _failed(fault)
    return outcome.verdict.status is Status.CORRECT


def _failed(fault: CandidateFault) -> bool | None:
    return None if fault.status is Status.TIMEOUT else False


def profile_kernels(
    session: CandidateSession, runner: RunnerProcess, candidate: Candidate, task: PreparedTask
) -> KernelProfile | None:
    """Which kernels ran on the first timed case, if it was checked; None if that is not known."""
    case = task.timed[0]
    try:
        with (
            session.on_device(),
            session.device.share(runner, case.inputs("task", OBSERVED)) as inputs,
        ):
            runner.open_profiler(BUILD_S)
            text = runner.observe(case.index, inputs, session.call_s)
    except CandidateFault:
        return None
    return profile_of(read_kernels(text), OwnCode(candidate.build))
