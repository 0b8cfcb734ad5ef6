"""The winner of a search, measured again beside every baseline: the finals of a suite.

Fitness is against one baseline, so a search pays for no other. A final does, once for the winner,
after it has won. There can be two finalists: the best program whose work custom kernels do, and, if
it is faster, the best that leaves part of it to vendors' libraries (`is_mixed`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from evolve.core.evaluation import OPPONENT_FAILED, Evaluation, Fidelity, Status
from evolve.core.lineage import VERIFY, Step
from evolve.core.measurement import Interval
from evolve.core.program import instance_digest
from evolve.core.protocols import Elite, Evaluator
from evolve.core.run_store import RunStore
from evolve.search.engine import Search
from evolve.search.execution.judging import Judging
from evolve.search.execution.verification import MAX_CONTENDERS, next_contender
from evolve.store import Ticket
from evolve.store.champion import champion

AGAIN = "again"
"""Operator name of tickets that ask for a verdict once more, after a fault of our own."""

EAGER = "eager"
_NOT_ITS_OWN = frozenset(("decoy_kernel", "evaluator_access", "foreign_library"))
_BEAT_S = 1.0
_NOTHING = Interval(0.0, 0.0, 0.0)


def is_mixed(step: Step) -> bool:
    """Whether a correct program has kernels of its own that matter, beside vendors' calls."""
    is_correct = step.status is Status.CORRECT and step.custom is False
    return is_correct and not _NOT_ITS_OWN & {*step.labels}


def finalists(search: Search) -> list[Elite]:
    """Programs to measure: the best custom one, and a mixed one that is faster, if any.

    Also a custom one that has not been measured and is faster than the result of the final.
    """
    custom, mixed = search.contenders()[:1], _best_mixed(search)
    found = [*custom]
    challenger = next_contender(search, champion(search.store, search.run))
    if challenger is not None and challenger not in custom:
        found.append(challenger)
    if mixed is not None and not (custom and mixed.fitness.value <= custom[0].fitness.value):
        found.append(mixed)
    return found


def _best_mixed(search: Search) -> Elite | None:
    """The archive holds custom programs only, so the steps are asked."""
    steps = list(search.store.steps(search.run.id))
    fallen = {
        _instance(step) for step in steps if step.operator == VERIFY and has_fallen(step.status)
    }
    best: Elite | None = None
    for step in steps:
        ratio = step.ratios.get(search.baseline)
        if step.program is None or ratio is None or not is_mixed(step):
            continue
        if step.operator == VERIFY or _instance(step) in fallen:
            continue
        if best is None or ratio.log().value > best.fitness.value:
            best = stand_in(step, ratio.log())
    return best


def has_fallen(status: Status | None) -> bool:
    """Whether a final's verdict speaks against the program."""
    return status not in (None, Status.CORRECT, Status.INFRA)


def _instance(step: Step) -> str:
    return instance_digest(step.program or "", step.assignment)


def lacking(store: RunStore, run: int, elite: Elite, baselines: Sequence[str]) -> list[str]:
    """The baselines that no final of a program says anything of, `eager` among them."""
    said: set[str] = set()
    instance = instance_digest(elite.program, elite.assignment)
    for sequence in store.made_by(run, VERIFY):
        evaluation = store.evaluation(run, sequence)
        if evaluation is not None and _instance(store.step(run, sequence)) == instance:
            said |= _spoken_of(evaluation, baselines)
    return [name for name in (EAGER, *baselines) if name not in said]


def _spoken_of(evaluation: Evaluation, baselines: Sequence[str]) -> set[str]:
    """Baselines that were timed, or failed themselves; all if the program gave no time.

    None if a fault of the judge left it without a verdict.
    """
    if evaluation.status is Status.INFRA:
        return set()
    if evaluation.status is not Status.CORRECT:
        return {EAGER, *baselines}
    failed = {
        label.evidence.partition(":")[0]
        for label in evaluation.labels
        if label.name == OPPONENT_FAILED
    }
    return {*evaluation.ratios} | failed


def evaluations_left(search: Search, baselines: Sequence[str]) -> int:
    """How many evaluations a final begins with; 0 if none is left, nor to be repeated."""
    store, run = search.store, search.run.id
    left = [elite for elite in finalists(search) if lacking(store, run, elite, baselines)]
    return len(search.open_tickets()) + len(left)


async def play_finals(
    search: Search,
    evaluator: Evaluator,
    baselines: Sequence[str],
    fidelity: Fidelity,
    stop: asyncio.Event,
    *,
    at_once: int,
) -> bool:
    """Measure the finalists beside all baselines, unless they have been; the next if one falls.

    The run is claimed meanwhile, and counts as finished afterwards.

    Args:
        search: of a run whose search has ended.
        evaluator: the judge.
        baselines: names of `BASELINES`; `eager` always takes part.
        fidelity: how thoroughly.
        stop: ends it early; a final that is under way then is repeated.
        at_once: how many finalists are measured at the same time, at least one.

    Returns:
        Whether a final has no verdict, by a fault of the judge: it is for another call.
    """
    failed = False
    async with taken_up(search, evaluator, stop) as final:
        for ticket in search.open_tickets():  # of a call that was stopped
            await final.end(at_once - 1)
            final.start(ticket, beside(baselines))
        await final.end()
        tried: set[str] = set()
        for _ in range(MAX_CONTENDERS):
            asked: list[Ticket] = []
            for elite in finalists(search):
                await final.end(at_once - 1)
                missing = lacking(search.store, search.run.id, elite, baselines)
                instance = instance_digest(elite.program, elite.assignment)
                if missing and instance not in tried and not stop.is_set():
                    tried.add(instance)
                    asked.append(search.reevaluate(elite, operator=VERIFY, fidelity=fidelity))
                    final.start(asked[-1], beside(missing))
            await final.end()
            verdicts = [search.store.evaluation(search.run.id, one.sequence) for one in asked]
            failed |= any(one is not None and one.status is Status.INFRA for one in verdicts)
    return failed


def unjudged(store: RunStore, run: int) -> list[Elite]:
    """Instances that have no verdict but that of our own fault."""
    last: dict[str, Step] = {}
    judged: set[str] = set()
    for step in store.steps(run):
        if step.program is not None and step.status is not None:
            last[_instance(step)] = step
            judged |= {_instance(step)} if step.status is not Status.INFRA else set()
    return [stand_in(step, _NOTHING) for name, step in last.items() if name not in judged]


async def judge_again(search: Search, evaluator: Evaluator, stop: asyncio.Event) -> None:
    """Judge once more, one after the other, the evaluations that failed by our own fault.

    A large task may need the memory that those had which were judged at the same time.
    """
    async with taken_up(search, evaluator, stop) as final:
        for elite in unjudged(search.store, search.run.id):
            if not stop.is_set():
                ticket = search.reevaluate(elite, operator=AGAIN, fidelity=Fidelity.SEARCH)
                await final.measure(ticket, {})


@asynccontextmanager
async def taken_up(
    search: Search, evaluator: Evaluator, stop: asyncio.Event
) -> AsyncIterator["Final"]:
    """A finished run, claimed for as long as something is measured in it."""
    store, run = search.store, search.run
    reason = store.run(run.name).reason
    store.claim(run.id)
    final = Final(search, evaluator, stop)
    try:
        yield final
    finally:
        await final.abandon()
        store.release(run.id, "finished", reason)


def beside(baselines: Sequence[str]) -> dict[str, str]:
    """Ways to run the reference as opponents; `eager` is one without being named."""
    return {name: "" for name in baselines if name != EAGER}


def stand_in(step: Step, fitness: Interval) -> Elite:
    """A program as `Search.again` takes it, also one that no archive holds."""
    return Elite(
        program=step.program or "",
        assignment=step.assignment,
        fitness=fitness,
        descriptors={},
        sequence=step.sequence,
        operator=step.operator,
    )


class Final:
    """Evaluates tickets, and keeps the run's lease."""

    def __init__(self, search: Search, evaluator: Evaluator, stop: asyncio.Event) -> None:
        self._search = search
        self._judging = Judging(search, evaluator)
        self._stop = stop

    async def measure(self, ticket: Ticket, opponents: Mapping[str, str]) -> None:
        """Until its verdict is told, or a stop is asked; beside opponents, by name."""
        self.start(ticket, opponents)
        await self.end()

    def start(self, ticket: Ticket, opponents: Mapping[str, str]) -> None:
        """Begin with a ticket, beside those that are under way."""
        self._judging.start(ticket, opponents)

    async def end(self, left: int = 0) -> None:
        """Wait until so many are left under way and the others are told, or a stop is asked."""
        while len(tasks := list(self._judging.tasks)) > left and not self._stop.is_set():
            await self._wait(tasks)
            _, failures = self._judging.collect()
            if failures:
                raise failures[0]

    async def _wait(self, tasks: Sequence[asyncio.Task[Evaluation]]) -> None:
        """For a moment, or until one ends."""
        began = time.monotonic()
        await asyncio.wait(tasks, timeout=_BEAT_S)
        self._search.store.heartbeat(self._search.run.id, time.monotonic() - began)

    async def abandon(self) -> None:
        """Cancel running evaluations; the next call measures again."""
        await self._judging.abandon()
