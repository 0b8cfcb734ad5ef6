"""What is judged alone: the user's own baseline before a search, and its winner after it."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import OPPONENT, VERIFY
from evolve.core.program import instance_digest
from evolve.core.protocols import Elite
from evolve.search.champion import (
    CHAMPION,
    RUNNER_UP,
    Champion,
    champion,
    verified_instances,
)
from evolve.search.engine import Search
from evolve.store import Ticket

MAX_CONTENDERS = 3  # verified one after the other until nobody else may be faster

RunAlone = Callable[[Ticket, Mapping[str, str]], Awaitable[None]]
"""Evaluates a ticket against some opponents while nothing else runs; returns early on a stop."""


async def judge_opponents(search: Search, run_alone: RunAlone) -> None:
    """Judge a user's baseline like a candidate, once: against a wrong one nothing counts.

    Raises:
        UsageError: it is not correct.
    """
    for ticket in search.opponent_tickets():
        await run_alone(ticket, {})
    store, run = search.store, search.run
    for sequence in store.made_by(run.id, OPPONENT):
        verdict = store.evaluation(run.id, sequence)
        if verdict is not None and verdict.status is not Status.CORRECT:
            raise UsageError(
                f"baseline={store.step(run.id, sequence).note} fails the check itself "
                f"({verdict.status}): {verdict.feedback}; mend it, or take baseline=eager"
            )


async def verify_champion(search: Search, run_alone: RunAlone, stopped: Callable[[], bool]) -> None:
    """Let the leader stand a verification, then whoever may still be faster than what stood.

    See `evolve.search.champion` for what follows from the stored results.
    """
    for _ in range(MAX_CONTENDERS):
        reigning = champion(search.store, search.run)
        contender, others = next_contender(search, reigning)
        if contender is None or stopped():
            return
        if reigning is not None and reigning.verified:
            rivals = {CHAMPION: search.text(reigning.program, reigning.assignment)}
        else:
            rivals = _runner_up(search, contender, others)
        verdict = await _verify_one(search, run_alone, contender, rivals)
        if verdict is not None and RUNNER_UP in rivals and _lost(verdict):
            leader_text = search.text(contender.program, contender.assignment)
            await _verify_one(search, run_alone, others[0], {CHAMPION: leader_text})


def next_contender(
    search: Search, reigning: Champion | None
) -> tuple[Elite | None, Sequence[Elite]]:
    """Who is to be verified now, if anybody, and the contenders behind.

    The leader, if it has not been; with a champion, also one whose interval lies above all of what
    its verification came to: that may be much less than what the search took it for.
    """
    contenders, done = search.contenders(), verified_instances(search.store, search.run)
    has_stood = reigning is not None and reigning.instance in done
    bar = reigning.ratio.log().high if reigning is not None and has_stood else -math.inf
    for place, elite in enumerate(contenders):
        is_open = instance_digest(elite.program, elite.assignment) not in done
        if is_open and (place == 0 or elite.fitness.low > bar):
            return elite, contenders[place + 1 :]
    return None, ()


def _runner_up(search: Search, leader: Elite, others: Sequence[Elite]) -> dict[str, str]:
    """The next best as an opponent, where it could be the better one."""
    if not others or others[0].fitness.high < leader.fitness.low:
        return {}
    return {RUNNER_UP: search.text(others[0].program, others[0].assignment)}


async def _verify_one(
    search: Search, run_alone: RunAlone, elite: Elite, opponents: Mapping[str, str]
) -> Evaluation | None:
    """The strict verdict on one contender; None where it failed or a stop was asked."""
    ticket = search.again(elite, operator=VERIFY, fidelity=Fidelity.VERIFY)
    await run_alone(ticket, opponents)
    evaluation = search.store.evaluation(search.run.id, ticket.sequence)
    return evaluation if evaluation is not None and evaluation.strict else None


def _lost(evaluation: Evaluation) -> bool:
    """Whether the runner-up won the duel by a whole interval."""
    duel = evaluation.ratios.get(RUNNER_UP)
    return duel is not None and duel.high < 1.0
