"""The state of a termination rule while evaluations and calls are running."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.core.evaluation import Fidelity
from evolve.core.lineage import NO_PROPOSALS
from evolve.core.model import Reservation
from evolve.core.protocols import Progress, TerminationRule
from evolve.search.engine import Search
from evolve.search.execution.calls import Calls
from evolve.search.execution.judging import Judging
from evolve.search.execution.reserve import VERIFICATION, Reserve
from evolve.store import Ticket

_NO_ANSWERS: Mapping[str, Any] = {"proposals": 0, "tokens": 0, "usd": 0.0}


class Limits:
    """Asks a termination rule, counting running work and reserves.

    Args:
        search: the engine, whose recorded progress the rule gets.
        termination: when to stop, and why.
        reserve: the time that evaluations and the verification take.
        judging: evaluations under way.
        waiting: proposals that wait for the judge.
        calls: calls of models, under way and waiting.
        stop_file: counts as a request to stop when it exists.
        verify: whether time is kept back for a verification.
    """

    def __init__(
        self,
        search: Search,
        termination: TerminationRule,
        reserve: Reserve,
        *,
        judging: Judging,
        waiting: Collection[Ticket],
        calls: Calls,
        stop_file: Path | None,
        verify: bool,
    ) -> None:
        self._search = search
        self._termination = termination
        self._reserve = reserve
        self._judging = judging
        self._waiting = waiting
        self._calls = calls
        self._stop_file = stop_file
        self._verify = verify

    @property
    def kept_s(self) -> float:
        """The cost of another evaluation, and of the verification of the best program by then."""
        has_winner = self._search.leader is not None
        return self._reserve.evaluation_s + self._reserve.verification_s * has_winner

    def over(self, *, reserve: bool = True) -> str:
        """Why no waiting proposal is judged; money spent on them is no reason."""
        done = replace(self._search.progress, **_NO_ANSWERS)
        done = replace(done, stop_requested=self._stop_asked())
        return self._termination.check(self._reserved(done) if reserve else done) or ""

    def reason(
        self,
        worst: Reservation | None = None,
        *,
        certain: bool = False,
        tuning: bool = False,
    ) -> str:
        """Why to ask for nothing more, counting running work as done.

        Args:
            worst: upper bound on the use of calls to be sent; reservations of earlier calls then
                count as used.
            certain: count only finished work.
            tuning: leave out the cost of answers: for tuning that continues without them.
        """
        pending = [
            ticket.proposal.fidelity
            for ticket in (*self._judging.tickets, *self._waiting)
            if ticket.proposal and ticket.operator not in NO_PROPOSALS
        ]
        # Each reply is a proposal and may be a program; so is that of a call that is to be sent.
        replies = 0 if certain else self._calls.expected - (worst is not None)
        progress = self._reserved(self._search.progress)
        expected = replace(
            progress,
            proposals=progress.proposals + replies,
            evaluations=progress.evaluations + pending.count(Fidelity.SEARCH) + replies,
            screens=progress.screens + pending.count(Fidelity.SCREEN),
            stop_requested=self._stop_asked(),
        )
        if tuning:
            expected = replace(expected, **_NO_ANSWERS)
        if worst is not None:
            expected = with_reservations(expected, worst)
        return self._termination.check(expected) or ""

    def admit(self, worst: Reservation) -> str:
        """Why a call must not be sent; calls that are under way may leave more than they took."""
        if not (reason := self.reason(worst)) or self.reason(certain=True):
            return reason
        usd = "an unknown sum" if worst.usd is None else f"{worst.usd:.2f} USD"
        return f"{reason}, counting what is to be sent with up to {worst.tokens:,} tokens and {usd}"

    def _reserved(self, progress: Progress) -> Progress:
        """The progress including reserves; device time by the run's average so far."""
        if not self._verify:
            return progress
        each_s = progress.device_time_s / max(progress.evaluations + progress.screens, 1)
        has_winner = self._search.leader is not None
        still = len(self._judging.tickets) + 1 + VERIFICATION * has_winner
        return replace(
            progress, wall_time_reserved_s=self.kept_s, device_time_reserved_s=each_s * still
        )

    def _stop_asked(self) -> str:
        if self._stop_file is not None and self._stop_file.exists():
            return "STOP file found"
        steering = self._search.steering
        return f"ended by {steering.by}" if steering.has_ended else ""


def with_reservations(progress: Progress, worst: Reservation) -> Progress:
    """The progress if all calls under way, and one more, come to their worst case.

    A limit may be met exactly, though rules fire when it is: hence the last token and a trifle.
    """
    usd = None
    if progress.usd is not None and worst.usd is not None:
        usd = (progress.usd + progress.usd_reserved + worst.usd) * (1 - 1e-12)
    tokens = progress.tokens + progress.tokens_reserved + worst.tokens - 1
    return replace(progress, tokens=tokens, usd=usd)
