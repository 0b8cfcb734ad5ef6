"""The asyncio loop around a `Search`: keeps models and judge busy, and ends for a stated reason."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve.core.errors import EvolveError, StoreError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import INJECTED, OPPONENT, REMEASURE, VERIFY
from evolve.core.protocols import Evaluator, Progress, TerminationRule, TriesPrograms
from evolve.search.engine import Search
from evolve.search.execution.calls import Answered, Calls
from evolve.search.execution.deadline import LATE_S, Deadline
from evolve.search.execution.firing import too_late
from evolve.search.execution.garbage import collect_seldom
from evolve.search.execution.judging import Judging, Told, UnderWay
from evolve.search.execution.limits import Limits
from evolve.search.execution.live_judge import SearchJudge
from evolve.search.execution.llm_concurrency import LLMConcurrency, Rounds
from evolve.search.execution.nothing_left import nothing_left
from evolve.search.execution.reserve import Reserve
from evolve.search.execution.steered import Steered
from evolve.search.execution.verification import judge_opponents, verify_champion
from evolve.store import Ticket, TicketState
from evolve.store.champion import verified_instances

MAX_FAILURES = 50  # recorded failures in a row that end a run
SAID_FAILURES = 10  # as many more in a row are said each time
OPENING = 3  # programs judged one by one, until one of them can be verified
POLL_S = 1.0  # how often rules that depend on time are checked while something is under way
UNVERIFIED = "the verification of the best kernel did not end in time"

Listener = Callable[[Told], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a pipeline ended. `finished` is False if the run can and should be resumed."""

    reason: str
    finished: bool


class Pipeline:
    """Runs a search to the end of its budget, or until it is told to stop.

    Two pools with separate limits: evaluations, as many as the judge has slots, and calls of the
    search's model. As many calls are made in advance as keep the judge busy (`LLMConcurrency`); if
    it would be idle while models answer, operators without a model fill in.

    A limit on wall time includes the verification: work begins only if the remaining time suffices
    for it and the verification, as estimated from the evaluations so far. Evaluations that take
    longer are given up when the verification has to begin, and the verification itself `late_s`
    behind the limit. A resume repeats all cancelled work; one that begins with its limit used up
    finishes the remaining work in any time.

    Args:
        search: the engine; its run is claimed for as long as `run` is under way.
        evaluator: the judge.
        termination: when to stop, and why.
        listeners: called after every told step, in order; they must not raise.
        heard: called after every call of a model; it must not raise.
        say: shows a line to the user, such as that an endpoint is down.
        stop_file: the run ends when this file exists.
        drain_s: how long running work may take after `request_stop`. Evaluations that still run
            then are repeated by a resume; calls are given up.
        verify: whether the champion is verified at the end; if not, the limit on wall time says
            when nothing more begins, and nothing is given up.
        open_verified: whether programs are judged one by one until the first that can be is
            verified: the user has something to rely on soon. Beside others it would wait
            while they are timed.
        serial: one thing at a time, so that a replay asks in the same order.
        began: when the time of this session began, on the clock of `time.monotonic`; None: now.
        late_s: how long after a limit on wall time running work may end.
        free_judge: ends the judge's work on evaluations that were cancelled.
        restarted: whether a cluster continues the run by itself, and no person.
    """

    def __init__(
        self,
        search: Search,
        evaluator: Evaluator,
        termination: TerminationRule,
        *,
        listeners: Iterable[Listener] = (),
        heard: Callable[[Answered], None] = lambda event: None,
        say: Callable[[str], None] = lambda line: None,
        stop_file: Path | None = None,
        drain_s: float = 15.0,
        verify: bool = True,
        open_verified: bool = False,
        serial: bool = False,
        began: float | None = None,
        late_s: float = LATE_S,
        free_judge: Callable[[], None] = lambda: None,
        restarted: bool = False,
    ) -> None:
        self._search = search
        self._termination = termination
        judge = SearchJudge(search, self._take_offered, lambda: self._limits.reason(certain=True))
        if isinstance(search.model, TriesPrograms):
            search.model.judged_by(judge)
        self._live_judge = judge
        self._listeners = (*listeners, judge.told)
        self._say = say
        self._drain_s = drain_s
        self._verify = verify
        self._opening = verify and open_verified
        self._serial = serial
        slots = search.model.slots if search.model else 0
        slots = min(slots, 1) if serial else slots
        self._pace = LLMConcurrency(slots, lambda: evaluator.slots)
        self._rounds = Rounds(search.batch)
        self._reserve = Reserve()
        self._judging = Judging(search, evaluator, self._took)
        self._calls = Calls(search, search.model, slots, say, self._pace, heard)
        self._proposed: deque[Ticket] = deque()  # waits for a slot of the judge
        self._limits = Limits(
            search,
            termination,
            self._reserve,
            judging=self._judging,
            waiting=self._proposed,
            calls=self._calls,
            stop_file=stop_file,
            verify=verify,
        )
        self._steered = Steered(search, termination, say, restarted=restarted)
        self._owed: set[int] = set()  # by number, the ones that an earlier session left behind
        # Left behind as well, but not to be judged like any proposal: alone, beside rivals.
        self._left: dict[str, list[Ticket]] = {VERIFY: [], OPPONENT: []}
        self._failures = {True: 0, False: 0}  # in a row, of models and of operators without
        self._gave_up = ""  # why no more is asked, after too many of them
        self._stop_reason = ""
        self._stop = asyncio.Event()
        self._clock = time.monotonic() if began is None else began
        self._deadline = Deadline(search, self._limits, self._reserve, late_s)
        self._free_judge = free_judge

    def request_stop(self, reason: str) -> None:
        """Ask for nothing more and end soon; the run stays resumable. Safe from signal handlers."""
        self._stop_reason = self._stop_reason or reason
        self._stop.set()

    def leave(self, reason: str) -> None:
        """Leave the run to a resume, for a process that exits right after this."""
        self._judging.withdraw()
        self._beat()
        self._search.store.log("interrupted", self._search.run.name, reason)
        self._search.store.release(self._search.run.id, "interrupted", reason)

    @property
    def under_way(self) -> Sequence[UnderWay]:
        """Evaluations that are under way, for displays."""
        return self._judging.under_way

    @property
    def only_waits_for_models(self) -> bool:
        """Whether it has nothing that the judge could do now."""
        return bool(self._calls.outstanding) and not self._judging.tasks and not self._proposed

    @property
    def calls_since(self) -> Sequence[float]:
        """When the calls of models that are under way were sent, oldest first."""
        return self._calls.since

    @property
    def verification_s(self) -> float:
        """About how long a verification takes; 0 if nothing tells yet."""
        return self._reserve.verification_s

    async def run(self) -> Outcome:
        """Search until a rule gives its reason, nothing is left to propose, or a stop is asked.

        Raises:
            EvaluatorUnavailable: the judge cannot be used; the run stays resumable.
            UsageError: the task or the user's baseline cannot be judged, or a model's endpoint
                wants something from a person, such as another key.
            StoreError: the database cannot be written.
        """
        collect_seldom()
        store, run = self._search.store, self._search.run
        store.claim(run.id)
        if self._search.progress.wall_time_s:
            store.log("resumed", run.name)
        outcome = Outcome(reason="the process ended", finished=False)
        try:
            outcome = await self._search_and_verify()
        except EvolveError as error:
            outcome = Outcome(reason=str(error), finished=False)
            if not isinstance(error, StoreError):
                await self._calls.settle(self._drain_s)
            raise
        finally:
            await self._abandon(outcome)
        return outcome

    async def _abandon(self, outcome: Outcome) -> None:
        """Give up work under way; the caller may lose patience with either kind."""
        store, run = self._search.store, self._search.run
        try:
            await self._calls.abandon()
        finally:
            try:
                await self._judging.abandon()
            finally:
                self._beat()
                state = "finished" if outcome.finished else "interrupted"
                store.log(state, run.name, outcome.reason)
                store.release(run.id, state, outcome.reason)

    async def _search_and_verify(self) -> Outcome:
        self._set_limit()
        await self._take_over()
        self._steer(self._steered.begin)
        goes_on = True
        while goes_on:
            reason = await self._loop()
            kept_back = self._limits.over() and not self._limits.over(reserve=False)
            if self._verify and not self._stop.is_set():
                await self._verify_champion()
            # A verification may have taken less than was kept back for it, or a person have given
            # more meanwhile.
            goes_on = self._steer(self._steered.take) or bool(kept_back)
            goes_on = goes_on and not self._stop.is_set() and not self._limits.over()
        while self._calls.tasks and not self._stop.is_set() and not self._deadline.is_late:
            await self._wait()
        if self._stop.is_set():
            await self._drain()
            return Outcome(reason=self._stop_reason, finished=False)
        if self._deadline.is_late and self._deadline.is_unverified:
            return Outcome(reason=f"{reason}; {UNVERIFIED}", finished=False)
        return Outcome(reason=reason, finished=True)

    def _set_limit(self) -> None:
        """Compute the end of the wall time, unless this session only finishes remaining work."""
        is_new = not self._search.progress.wall_time_s
        for line in too_late(self._search.parts, self._termination) if is_new else ():
            self._say(line)
        self._beat()
        self._reserve.recall(self._search)
        if self._verify and (is_new or not self._limits.over()):
            self._deadline.ends = self._clock + self._termination.wall_time_left_s(
                self._search.progress
            )

    async def _verify_champion(self) -> None:
        waiting, self._left[VERIFY] = self._left[VERIFY], []
        await verify_champion(self._search, self._run_alone, self._may_not_verify, waiting)

    def _may_not_verify(self) -> bool:
        return self._stop.is_set() or self._deadline.is_to_end

    async def _take_over(self) -> None:
        """Work that an earlier session left behind; the user's baseline is judged at once."""
        for ticket in self._search.open_tickets():
            if ticket.operator in self._left:
                self._left[ticket.operator].append(ticket)
            else:
                self._owed.add(ticket.sequence)
                self._take(ticket)
        await judge_opponents(self._search, self._run_alone, self._left[OPPONENT])

    async def _loop(self) -> str:
        """Search until nothing is left to ask and running work has ended; returns the reason."""
        while not self._stop.is_set():
            if self._opening and not self._is_paused:
                await self._open()
                if self._stop.is_set():
                    break
            reason = self._fill()
            if self._deadline.has_to_verify(bool(self._judging.tasks)):
                await self._give_up()
                return reason or self._limits.over()
            if not self._tasks() and (reason or not self._is_paused):
                if not self._calls.outstanding:
                    return reason or nothing_left(self._search)
                # The rest waits for an unavailable endpoint, or may not be sent at all.
                if ended := self._calls.refused or self._limits.reason(certain=True):
                    return ended
            await self._wait()
        return self._stop_reason

    async def _give_up(self) -> None:
        """End evaluations that take too long; a resume repeats them."""
        self._beat()
        self._collect()
        if self._judging.tasks:
            await self._judging.abandon()
            self._free_judge()

    async def _open(self) -> None:
        """Verify the first program that can be, if there is one; ends the opening, or not yet."""
        search = self._search
        judged = search.progress.evaluations + search.progress.screens
        if verified_instances(search.store, search.run):
            self._opening = False
        elif self._left[VERIFY] or search.contenders():
            await self._verify_champion()
            self._opening = self._stop.is_set()
        elif judged >= OPENING:
            self._opening = False
        if not self._opening:
            self._measure_leader()

    def _measure_leader(self) -> None:
        """In full, if it had only a first interval: the reference of comparisons must be sure."""
        search = self._search
        leader = next(iter(search.contenders()), None)
        is_due = any(ticket.operator == REMEASURE for ticket in self._proposed)
        if leader is None or leader.evaluations > 1 or is_due:
            return
        known = search.store.attempt_evaluation(search.run.id, leader.program)
        if known is not None and known.early_stopped:
            again = search.reevaluate(leader, operator=REMEASURE, fidelity=Fidelity.SEARCH)
            self._proposed.appendleft(again)

    def _fill(self) -> str:
        """Use all free slots; returns why nothing more is asked for, if a rule says so."""
        self._steer(self._steered.take)
        if self._is_paused:
            return self._limits.over()
        while True:
            if over := self._start_judging():
                return over
            if self._may_call():
                self._calls.send(self._limits.admit)
            if ended := self._gave_up or ("" if self._calls.tasks else self._calls.refused):
                return ended
            models = self._wanted()
            if models is None:
                return ""
            reason = self._limits.reason()
            ticket = self._ask_tuning() if reason else self._search.ask(models)
            if ticket is None:
                return reason
            if ticket.model:
                self._rounds.asked()
            self._take(ticket)

    def _steer(self, take: Callable[[], list[Ticket]]) -> bool:
        """Let changes of people hold from here on, which may give time; whether there were any."""
        before = self._steered.taken
        limit_s = self._termination.wall_time_left_s(Progress())
        for ticket in take():
            self._take(ticket)
        if (raised_s := self._termination.wall_time_left_s(Progress())) != limit_s:
            self._deadline.ends += raised_s - limit_s
        return self._steered.taken > before

    @property
    def _is_paused(self) -> bool:
        return self._search.steering.is_paused

    def _ask_tuning(self) -> Ticket | None:
        """The cost of answers does not end their tuning, which has a share of its own."""
        if self._limits.over() or self._limits.reason(tuning=True):
            return None
        return self._search.ask_tuning()

    def _start_judging(self) -> str:
        """Fill the judge's slots; why nothing more is started, if a rule says so.

        Work of an earlier session is judged in spite of the limits: a person may have written it by
        hand since.
        """
        while self._proposed and self._may_judge():
            ticket = self._proposed[0]
            if ticket.sequence not in self._owed and (over := self._limits.over()):
                return over
            self._judging.start(self._proposed.popleft(), is_opening=self._opening)
        return ""

    def _wanted(self) -> list[str] | None:
        """Models for the next ask; empty for operators without models, None for no ask at all."""
        if self._serial and (self._calls.outstanding or self._proposed or self._tasks()):
            return None
        ahead = self._calls.expected + len(self._proposed)
        askable = self._calls.askable() if self._may_ask() else []
        # A round is asked for as a whole, however many tunings wait for the judge.
        if askable and (self._search.batch or ahead < self._pace.ahead):
            return askable
        return [] if self._may_judge() and not self._proposed else None

    def _may_ask(self) -> bool:
        tickets = (*self._judging.tickets, *self._proposed)
        steps = sum(not self._search.is_tuning(ticket) for ticket in tickets)
        return self._deadline.has_time_to_call(self._pace.call_s) and self._rounds.may_ask(
            self._calls.outstanding + steps
        )

    def _may_judge(self) -> bool:
        if self._opening and self._judging.tasks:
            return False
        return not (self._serial and self._tasks()) and self._judging.has_room()

    def _may_call(self) -> bool:
        return self._deadline.has_time_to_call(self._pace.call_s) and not (
            self._serial and self._tasks()
        )

    def _tasks(self) -> list[asyncio.Task[object]]:
        return [*self._judging.tasks, *self._calls.tasks]

    def _take(self, ticket: Ticket) -> None:
        """Send a ticket where it belongs, and count failures in a row.

        Models apart: one that says nothing of use would be paid for as long as others succeed.
        """
        modelled = bool(ticket.model)
        if ticket.state is TicketState.ASKED:
            self._calls.add(ticket)
        elif ticket.state is TicketState.PROPOSED:
            self._failures[modelled] = 0
            self._proposed.append(ticket)
        elif ticket.operator == INJECTED:  # a person's, which says nothing of the operators
            self._say(f"fail #{ticket.sequence} {ticket.operator}: {ticket.failure[:150]}")
        else:
            self._failures[modelled] += 1
            self._say(f"fail #{ticket.sequence} {ticket.operator}: {ticket.failure[:150]}")
            number, whose = self._failures[modelled], "replies" if modelled else "proposals"
            said = f"{number} {whose} in a row gave no program, the last: {ticket.failure}"
            if number % SAID_FAILURES == 0:
                self._say(said)
            if number >= MAX_FAILURES:
                self._gave_up = said

    def _take_offered(self, ticket: Ticket) -> None:
        """A program that a model tries while it answers: that call has given one.

        It is judged before those that no model waits for.
        """
        self._failures[True] = 0
        self._proposed.insert(sum(map(self._live_judge.awaits, self._proposed)), ticket)

    async def _wait(self) -> None:
        """Until something ends, a stop is asked, or time-dependent rules are due."""
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait(
                [*self._tasks(), stop],
                timeout=POLL_S if self._is_paused else min(POLL_S, self._calls.wake_s + 0.001),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stop.cancel()
        self._beat()
        self._collect()

    def _collect(self) -> None:
        """Tell and read finished work; only then are listeners called."""
        told, failures = self._judging.collect()
        for event in told:
            for listener in self._listeners:
                listener(event)
        answered, broken = self._calls.collect()
        for ticket in answered:
            self._take(ticket)
        if errors := [*failures, *broken]:
            raise errors[0]

    async def _run_alone(self, ticket: Ticket, opponents: Mapping[str, str]) -> None:
        self._judging.start(ticket, opponents)
        while self._judging.tasks and not self._stop.is_set() and not self._deadline.is_late:
            await self._wait()
        if not self._stop.is_set():
            await self._give_up()

    async def _drain(self) -> None:
        """Let running work finish for a while; a resume asks the rest again."""
        deadline = time.monotonic() + self._drain_s
        await self._calls.withdraw_unsent()
        while (tasks := self._tasks()) and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            self._collect()

    def _took(self, seconds: float, evaluation: Evaluation) -> None:
        self._pace.judged(seconds)
        self._reserve.judged(seconds, evaluation)

    def _beat(self) -> None:
        now = time.monotonic()
        passed_s, self._clock = now - self._clock, now
        if self._is_paused:  # no time of the run's
            self._deadline.ends += passed_s
            passed_s = 0.0
        self._search.store.heartbeat(self._search.run.id, passed_s)
