"""Facts to store: small tasks, programs, evaluations, all made from numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Label, Stage, Status
from evolve.core.lineage import NO_PROPOSALS
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Assignment, Program
from evolve.core.protocols import AddStatus, Elite, Offer, Progress, Proposal
from evolve.core.task import Task
from evolve.store import RunRow, Store, Ticket

TASK = Task(name="rows", source="class Model: pass\n", seeds=("class ModelNew: pass\n",))


def program(number: int) -> Program:
    return Program(f"BLOCK = {number}\n\n\nclass ModelNew:\n    size = {number}\n")


def ratio(value: float, spread: float = 0.01) -> Ratio:
    return Ratio(value, value * (1 - spread), value * (1 + spread))


def evaluation(
    speedup: float | None = 1.5,
    *,
    status: Status = Status.CORRECT,
    fidelity: Fidelity = Fidelity.SEARCH,
    custom: bool | None = True,
    ratios: Mapping[str, Ratio] | None = None,
    device_time_s: float = 0.25,
) -> Evaluation:
    """A correct evaluation with this speedup against eager; None: `status` without ratios."""
    if ratios is None:
        ratios = {} if speedup is None else {"eager": ratio(speedup), "elite": ratio(1.0)}
    return Evaluation(
        status=status,
        stage=Stage.TIMING,
        fidelity=fidelity,
        task_revision=TASK.revision,
        device_class="cpu-test",
        evaluator_version="7",
        ratios=ratios,
        cases=(
            CaseResult(
                name="large",
                weight=1.0,
                timed=True,
                passed=True,
                times_ms={"candidate": Interval(2.0, 1.9, 2.2)},
                ratios=ratios,
            ),
        ),
        custom=custom,
        suite=None,
        labels=(Label("plain_loop", "line 3"),),
        feedback="one case, within the budget" * 10,
        descriptors={"vector": "none", "depth": 2.0},
        environment={"host": "here", "torch": "2.13"},
        samples={"large": {"candidate": [2.0, 1.9, 2.2] * 20}},
        durations_s={"compile": 1.5},
        device_time_s=device_time_s,
    )


def elite(ticket: Ticket, judged: Evaluation) -> Elite:
    proposal = ticket.proposal
    fitness = judged.fitness("eager")
    assert proposal is not None
    assert fitness is not None
    return Elite(
        program=proposal.program.digest,
        assignment=proposal.assignment,
        fitness=fitness,
        descriptors=judged.descriptors,
        sequence=ticket.sequence,
        operator=ticket.operator,
        parents=proposal.parents,
    )


class SmallArchive:
    """An independent archive: one elite per `number % places`, the fitter one stays."""

    def __init__(self, places: int = 4) -> None:
        self.places = places
        self.held: dict[str, Elite] = {}

    def offer(self, candidate: Elite, number: int) -> Offer:
        slot = f"place{number % self.places}"
        holder = self.held.get(slot)
        if holder is not None and holder.fitness.value >= candidate.fitness.value:
            return Offer(AddStatus.NOT_ADDED)
        self.held = {
            place: kept
            for place, kept in self.held.items()
            if kept.program != candidate.program and place != slot
        }
        self.held[slot] = candidate
        if holder is None:
            return Offer(AddStatus.NEW, slot)
        evicted = None if holder.program == candidate.program else holder.program
        return Offer(AddStatus.IMPROVED, slot, evicted)


def new_run(store: Store, name: str = "first", **config: str) -> RunRow:
    return store.create_run(name=name, task=TASK, config=config, seed=3)


def take_step(
    store: Store,
    run: int,
    archive: SmallArchive,
    number: int,
    *,
    parents: tuple[str, ...] = (),
    assignment: Assignment | None = None,
    judged: Evaluation | None = None,
) -> Ticket:
    """One whole step with program `number`, whose speedup follows from the number."""
    ticket = store.ask(run, "tune" if number % 3 else "seed", parents)
    proposal = Proposal(program=program(number), assignment=assignment or {}, parents=parents)
    ticket = store.propose(ticket, proposal)
    store.start_evaluation(ticket)
    judged = judged or evaluation(1.0 + math.sin(number) ** 2)
    ticket = store.evaluated(ticket, judged)
    if judged.fitness("eager") is None:
        store.tell(ticket, None, None)
    else:
        candidate = elite(ticket, judged)
        store.tell(ticket, candidate, archive.offer(candidate, number))
    return ticket


def recount(store: Store, run: int, baseline: str = "eager") -> Progress:
    """The counters of a run, from its steps alone (which must have been evaluated in order)."""
    steps = list(store.steps(run))
    judged = [step for step in steps if step.status is not None]
    whole = [step for step in judged if step.fidelity is not Fidelity.SCREEN]
    best: Ratio | None = None
    to_beat, at_best = 0.0, 0
    for count, step in enumerate(whole, start=1):
        found = step.ratios.get(baseline)
        if not (step.custom and found):
            continue
        if best is None or found.value > best.value:
            best = found
        if found.low > to_beat:
            to_beat, at_best = found.high, count
    return Progress(
        proposals=sum(
            bool(step.program or step.failure) and step.operator not in NO_PROPOSALS
            for step in steps
        ),
        evaluations=len(whole),
        screens=len(judged) - len(whole),
        device_time_s=math.fsum(step.device_time_s for step in judged),
        wall_time_s=store.progress(run).wall_time_s,
        best=best,
        evaluations_at_best=at_best,
    )


def replay(store: Store, run: int) -> dict[str, Elite]:
    """The archive's slots by applying every offer in order, without looking at stored slots."""
    held: dict[str, Elite] = {}
    for candidate, offer in store.offers(run):
        if offer:
            leaving = {candidate.program, offer.evicted}
            held = {slot: kept for slot, kept in held.items() if kept.program not in leaving}
            assert offer.slot is not None
            held[offer.slot] = candidate
    return held
