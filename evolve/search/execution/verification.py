"""Programs that are judged alone: the user's own baseline before a search, its winner after it."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import OPPONENT, VERIFY
from evolve.core.program import instance_digest
from evolve.core.protocols import Elite
from evolve.search.engine import Search
from evolve.store import Ticket
from evolve.store.champion import (
    CHAMPION,
    RUNNER_UP,
    Champion,
    champion,
    verified_instances,
)

MAX_CONTENDERS = 3  # verified one after the other until no other may be faster

RunAlone = Callable[[Ticket, Mapping[str, str]], Awaitable[None]]
"""Evaluates a ticket against some opponents while nothing else runs; returns early on a stop."""


async def judge_opponents(
    search: Search, run_alone: RunAlone, waiting: Sequence[Ticket] = ()
) -> None:
    """Judge a user's baseline like a candidate, once: against a wrong one nothing counts.

    `waiting` are tickets of an earlier session that it was stopped at.

    Raises:
        UsageError: it is not correct.
        EvaluatorUnavailable: whether it is could not be found out.
    """
    for ticket in (*waiting, *search.opponent_tickets()):
        await run_alone(ticket, {})
    store, run = search.store, search.run
    last = {store.step(run.id, number).note: number for number in store.made_by(run.id, OPPONENT)}
    for name, sequence in last.items():
        verdict = store.evaluation(run.id, sequence)
        if verdict is None or verdict.status is Status.CORRECT:
            continue
        if verdict.status is Status.INFRA:
            raise EvaluatorUnavailable(f"baseline={name} could not be judged: {verdict.feedback}")
        raise UsageError(
            f"baseline={name} fails the check itself "
            f"({verdict.status}): {verdict.feedback}; mend it, or take baseline=eager"
        )


async def verify_champion(
    search: Search,
    run_alone: RunAlone,
    stopped: Callable[[], bool],
    waiting: Sequence[Ticket] = (),
) -> None:
    """Verify the leader, then programs that may still be faster than the one verified.

    `waiting` are verifications that an earlier session was stopped at. See `evolve.store.champion`
    for the decision from the stored results.
    """
    for ticket in waiting:
        if not stopped():
            await _verify(search, run_alone, ticket, champion(search.store, search.run))
    for _ in range(MAX_CONTENDERS):
        reigning = champion(search.store, search.run)
        contender = next_contender(search, reigning)
        if contender is None or stopped():
            return
        await _verify(search, run_alone, _ticket(search, contender), reigning)


def next_contender(search: Search, reigning: Champion | None) -> Elite | None:
    """The program to be verified now, if any.

    The leader, if it has not been; with a champion, also one whose interval lies above the
    champion's verification, which may be much lower than the search's estimate.
    """
    contenders, done = search.contenders(), verified_instances(search.store, search.run)
    has_stood = reigning is not None and reigning.instance in done
    bar = reigning.ratio.log().high if reigning is not None and has_stood else -math.inf
    for place, elite in enumerate(contenders):
        is_open = instance_digest(elite.program, elite.assignment) not in done
        if is_open and (place == 0 or elite.fitness.low > bar):
            return elite
    return None


async def _verify(
    search: Search, run_alone: RunAlone, ticket: Ticket, reigning: Champion | None
) -> None:
    """Judge a contender beside the one to beat; one that beats it has its turn at once."""
    request = search.request(ticket)
    rivals: dict[str, str] = {}
    if reigning is not None and reigning.verified and reigning.instance != request.instance:
        rivals[CHAMPION] = search.text(reigning.program, reigning.assignment)
    if runner_up := _runner_up(search, request.instance):
        rivals[RUNNER_UP] = search.text(runner_up.program, runner_up.assignment)
    await run_alone(ticket, rivals)
    verdict = search.store.evaluation(search.run.id, ticket.sequence)
    if runner_up is not None and verdict is not None and verdict.strict and _lost(verdict):
        await run_alone(_ticket(search, runner_up), {CHAMPION: request.source})


def _ticket(search: Search, elite: Elite) -> Ticket:
    return search.reevaluate(elite, operator=VERIFY, fidelity=Fidelity.VERIFY)


def _runner_up(search: Search, instance: str) -> Elite | None:
    """The next best behind a contender, if it could be the better one and has had no turn."""
    contenders, done = search.contenders(), verified_instances(search.store, search.run)
    instances = [instance_digest(elite.program, elite.assignment) for elite in contenders]
    if instance not in instances[:-1]:
        return None
    place = instances.index(instance)
    leader, other = contenders[place : place + 2]
    has_stood = instances[place + 1] in done
    return None if has_stood or other.fitness.high < leader.fitness.low else other


def _lost(evaluation: Evaluation) -> bool:
    """Whether the runner-up won the duel by a whole interval."""
    duel = evaluation.ratios.get(RUNNER_UP)
    return duel is not None and duel.high < 1.0
