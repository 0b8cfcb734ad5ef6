"""A run's dispatch set: composed from the archive, and judged as a step of the run."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evolve.app.dispatch.choice import Choice, Contender, Workload, choose
from evolve.app.dispatch.fallback import fallback_of
from evolve.app.dispatch.module import Row, registered, set_text
from evolve.app.frontend import Frontend
from evolve.app.library.winner import no_winner
from evolve.core.errors import UsageError
from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Status
from evolve.core.lineage import REFERENCE, VERIFY
from evolve.core.measurement import Interval
from evolve.core.program import Program
from evolve.core.protocols import Elite, Evaluator
from evolve.core.run_store import RunStore
from evolve.core.source.tunables import freeze
from evolve.report.text import count_text, printable
from evolve.search.engine import Search
from evolve.search.execution.final_evaluation import Final, stand_in, taken_up
from evolve.store import RunRow, Ticket, TicketState
from evolve.store.champion import CHAMPION, champion, refuted_instances

DISPATCH = "dispatch"
"""Operator name of the tickets of dispatch sets."""

_NOTHING = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A set before it is judged.

    Attributes:
        choice: its programs.
        workloads: that they serve.
        note: a line about them.
        text: the set; empty if one program does for all workloads.
        probe: the set without a table, so that the reference in it makes every call; empty if it
            has none.
        bare: the same set without the reference, so that other calls are an error; None without a
            probe.
    """

    choice: Choice
    workloads: Sequence[Workload]
    note: str
    text: str = ""
    probe: str = ""
    bare: "Composed | None" = None


def compose(store: RunStore, run: RunRow, penalty: float) -> Composed:
    """The set of the programs that a run's archive holds.

    Raises:
        UsageError: the run has not ended, has no timed programs, or fewer than two workloads to
            tell apart.
    """
    if run.state != "finished":
        raise UsageError(f"run {run.name} has not ended; first `evolve resume {run.name}`")
    from evolve.app.dispatch.signatures import case_signatures  # imports torch

    signatures = case_signatures(run.task)
    if vague := [name for name, signature in signatures.items() if not signature]:
        raise UsageError(
            f"run {run.name}: inputs of case {printable(vague[0])} have other shapes at each draw, "
            "so that calls cannot be told by them; `evolve best` writes its winner"
        )
    contenders, evaluation = _contenders(store, run)
    workloads = _workloads(evaluation, signatures)
    if len(workloads) < 2:
        raise UsageError(
            f"run {run.name}: the calls of its timed cases do not differ in shapes or dtypes, so "
            "there is nothing to choose by; `evolve best` writes its winner"
        )
    timed = [one for one in contenders if _is_timed(one, workloads)]
    choice = choose(timed, workloads, penalty=penalty, fit=_fit)
    fallback = fallback_of(run.task)
    note = _note(choice, workloads, has_reference=bool(fallback))
    if len(choice.programs) < 2:
        return Composed(choice=choice, workloads=workloads, note=note)
    programs, rows = [one.source for one in choice.programs], _rows(choice, signatures)

    def text(note: str, rows: Sequence[Row], fallback: str) -> str:
        header = [f"Dispatch set for task {printable(run.task.name)}: {note}.", *_served(choice)]
        return set_text(header, programs, rows, fallback)

    bare_note = _note(choice, workloads, has_reference=False)
    bare = Composed(
        choice=choice, workloads=workloads, note=bare_note, text=text(bare_note, rows, "")
    )
    if not fallback:
        return bare
    probe = text(note, (), fallback)
    return replace(bare, note=note, text=text(note, rows, fallback), probe=probe, bare=bare)


def _contenders(store: RunStore, run: RunRow) -> tuple[list[Contender], Evaluation]:
    """The archive's programs, sets left out, and the verdict on one of them."""
    refuted = refuted_instances(store, run)
    found, evaluation = [], None
    for elite in {elite.program: elite for elite in store.slots(run.id).values()}.values():
        verdict = store.attempt_evaluation(run.id, elite.program)
        if verdict is None or elite.operator == DISPATCH:
            continue
        one = _contender(store, run, elite, verdict)
        if one.instance not in refuted:
            found.append(one)
            evaluation = verdict
    if evaluation is None:
        raise no_winner(run)
    return sorted(found, key=lambda one: one.sequence), evaluation


def _contender(store: RunStore, run: RunRow, elite: Elite, verdict: Evaluation) -> Contender:
    return Contender(
        program=elite.program,
        assignment=elite.assignment,
        sequence=elite.sequence,
        source=freeze(store.source(elite.program), elite.assignment),
        ratios={
            case.name: case.ratios[run.baseline]
            for case in verdict.cases
            if run.baseline in case.ratios
        },
    )


def _workloads(evaluation: Evaluation, signatures: Mapping[str, str]) -> list[Workload]:
    """The timed cases; those whose calls have the same signature are one workload."""
    cases: dict[str, list[CaseResult]] = {}
    for case in evaluation.cases:
        if case.timed:
            cases.setdefault(signatures[case.name], []).append(case)
    return [Workload(signature, tuple(found)) for signature, found in cases.items()]


def _is_timed(one: Contender, workloads: Sequence[Workload]) -> bool:
    return all(case.name in one.ratios for each in workloads for case in each.cases)


def _fit(programs: Sequence[Contender]) -> bool:
    """Whether no two of them register the same operator, which PyTorch takes once only."""
    names = [registered(one.source) for one in programs]
    return sum(map(len, names)) == len(set[str]().union(*names))


def _note(choice: Choice, workloads: Sequence[Workload], *, has_reference: bool) -> str:
    many = "s" if len(choice.programs) > 1 else ""
    steps = ", ".join(str(one.sequence) for one in choice.programs)
    other = "the reference" if has_reference else "an error"
    return (
        f"{count_text(len(choice.programs), 'program')} (of step{many} {steps}) for "
        f"{count_text(len(workloads), 'workload')}; calls of other shapes get {other}"
    )


def _served(choice: Choice) -> list[str]:
    """A line for each program: the workloads that it is for."""
    return [
        f"program {number} (step {one.sequence}): "
        + "; ".join(each.names for each, by in choice.served_by.items() if by is one)
        for number, one in enumerate(choice.programs, 1)
    ]


def _rows(choice: Choice, signatures: Mapping[str, str]) -> Sequence[Row]:
    """The table; cases that are only checked take the first program."""
    rows = {
        each.signature: Row(
            signature=each.signature, program=choice.number(each), remark=f"case {each.names}"
        )
        for each in choice.served_by
    }
    for case, signature in signatures.items():
        if signature not in rows:
            remark = f"case {case}, not timed"
            rows[signature] = Row(signature=signature, program=0, remark=remark)
    return list(rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The step of a set, its verdict (None: there is none), and that beside the best program.

    `reference_fault` says why the set has no reference for calls of other shapes.
    """

    sequence: int
    failure: str
    evaluation: Evaluation | None
    duel: Evaluation | None = None
    reference_fault: str = ""


async def judge(
    search: Search,
    evaluator: Evaluator,
    composed: Composed,
    frontend: Frontend,
    stop: asyncio.Event,
) -> Judged:
    """Judge a set as a step of its run, then beside the best program, which it may replace.

    First the reference in it is checked, as a set in which no program serves any shape; if it is
    wrong there, the set that is judged has none.

    Args:
        search: of the finished run.
        evaluator: the judge.
        composed: a set with a text.
        frontend: shows progress.
        stop: ends it early; the next call goes on.

    Raises:
        EvaluatorUnavailable: the judge ends.
    """
    async with taken_up(search, evaluator, stop) as final:
        try:
            fault = await _reference_fault(search, final, composed, frontend)
        except _Unchecked as error:
            return Judged(sequence=-1, failure=str(error), evaluation=None)
        if fault and composed.bare:
            composed = composed.bare
        judged = await _judged(search, final, composed, frontend)
        return replace(judged, reference_fault=fault)


class _Unchecked(Exception):
    """The check of the reference gave no verdict; the message says why."""


async def _reference_fault(
    search: Search, final: Final, composed: Composed, frontend: Frontend
) -> str:
    """Why the reference in a set is wrong; empty if it is correct, or the set has none.

    Raises:
        _Unchecked: there is no verdict.
    """
    if not composed.probe:
        return ""
    ticket = _probe(search, composed)
    if ticket.state is not TicketState.TOLD:
        with frontend.doing("checking the reference in the set"):
            await final.measure(ticket, {})
    verdict = search.store.evaluation(search.run.id, ticket.sequence)
    if verdict is None:
        raise _Unchecked("stopped")
    if verdict.status is Status.INFRA:
        raise _Unchecked(verdict.feedback)
    return "" if verdict.status is Status.CORRECT else verdict.feedback


def _probe(search: Search, composed: Composed) -> Ticket:
    """The ticket that checks the reference in a set in which no program serves any shape.

    An earlier ticket for the same set is used again, unless its verdict is `infra`.
    """
    store, run, program = search.store, search.run.id, Program(composed.probe).digest
    for sequence in reversed(store.made_by(run, REFERENCE)):
        step = store.step(run, sequence)
        if step.program == program and step.status is not Status.INFRA:
            return store.ticket(run, sequence)
    return search.check(composed.probe, operator=REFERENCE, note="the reference in a dispatch set")


async def _judged(search: Search, final: Final, composed: Composed, frontend: Frontend) -> Judged:
    store, run = search.store, search.run
    ticket = _ticket(search, composed)
    if ticket.state is TicketState.TOLD and ticket.failure:
        return Judged(sequence=ticket.sequence, failure=ticket.failure, evaluation=None)
    if ticket.state is not TicketState.TOLD:
        with frontend.doing("judging the set"):
            await final.measure(ticket, {})
    verdict = store.evaluation(run.id, ticket.sequence)
    if verdict is None or not verdict.strict:
        return Judged(sequence=ticket.sequence, failure="", evaluation=verdict)
    with frontend.doing("judging it beside the best program"):
        duel = await _duel(search, final, ticket.sequence, composed.choice.programs[0])
    return Judged(sequence=ticket.sequence, failure="", evaluation=verdict, duel=duel)


def _ticket(search: Search, composed: Composed) -> Ticket:
    """That of the same set of an earlier call, or a new one; another after a fault of the judge."""
    store, run = search.store, search.run
    program = Program(composed.text).digest
    for sequence in reversed(store.made_by(run.id, DISPATCH)):
        step = store.step(run.id, sequence)
        if step.program == program and step.status is Status.INFRA:
            again = stand_in(step, _NOTHING)
            return search.reevaluate(again, operator=DISPATCH, fidelity=Fidelity.SEARCH)
        if step.program == program:
            return store.ticket(run.id, sequence)
    parents = [one.program for one in composed.choice.programs]
    return search.offer(composed.text, operator=DISPATCH, note=composed.note, parents=parents)


async def _duel(
    search: Search, final: Final, sequence: int, single: Contender
) -> Evaluation | None:
    """The set in fresh processes beside the run's winner: if none is verified, one is first."""
    store, run = search.store, search.run
    best = champion(store, run)
    if best is None or not best.verified:
        await final.measure(_verification(search, single.sequence), {})
        best = champion(store, run)
    if best is not None and best.program == store.step(run.id, sequence).program:
        return best.evaluation  # of an earlier call
    rivals = {} if best is None else {CHAMPION: search.text(best.program, best.assignment)}
    ticket = _verification(search, sequence)
    await final.measure(ticket, rivals)
    return store.evaluation(run.id, ticket.sequence)


def _verification(search: Search, sequence: int) -> Ticket:
    """The verification of a step's program, or that which an earlier call was stopped at."""
    step = search.store.step(search.run.id, sequence)
    for ticket in search.open_tickets():
        is_same = ticket.proposal and ticket.proposal.program.digest == step.program
        if ticket.operator == VERIFY and is_same:
            return ticket
    return search.reevaluate(stand_in(step, _NOTHING), operator=VERIFY, fidelity=Fidelity.VERIFY)
