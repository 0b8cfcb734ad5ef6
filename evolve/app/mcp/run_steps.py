"""Steps of runs that a client answers: asked for, handed in, judged, and looked up."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from evolve.app.database import open_store
from evolve.app.manual.asking import requests, wanted_operators
from evolve.app.manual.files import Answer, written_reply
from evolve.app.manual.replies import misplaced
from evolve.app.mcp.attached import Attached
from evolve.app.mcp.budget import Budget
from evolve.app.mcp.judging import LazyJudge, verdict_fields
from evolve.app.mcp.results import Accepted, Asked, Verdict
from evolve.app.team.quotas import termination
from evolve.core.errors import UsageError
from evolve.core.model import conversation
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore
from evolve.report.audit import findings_of
from evolve.report.text import one_line
from evolve.search.verdicts import request_id, waiting_tickets
from evolve.serve.answers import verdict_answer
from evolve.store import Ticket, TicketState

LOOK_S = 1.0  # how often a step is looked up that another process may judge
MOST_HANDED = 64  # requests of one run that clients may have at a time


class RunSteps:
    """Requests of runs, and the replies and programs that clients hand in.

    Args:
        location: the database.
        judge: judges programs.
        budget: limits how many verdicts that may take.
    """

    def __init__(self, location: str, judge: LazyJudge, budget: Budget) -> None:
        self._location = location
        self._judge = judge
        self._budget = budget
        self._open: dict[str, Attached] = {}
        self._handed: dict[str, set[int]] = {}
        self._turn = asyncio.Lock()
        self._news = asyncio.Condition()

    async def ask(self, run: str | None, operator: str | None) -> Asked:
        """The next request of a run that no client has yet.

        Raises:
            UsageError: there is none, or another process continues the run.
        """
        async with self._attached(run) as attached:
            search = attached.search
            handed = self._handed.setdefault(search.run.name, set())
            if len(handed) >= MOST_HANDED:
                raise UsageError(
                    f"run {search.run.name}: {MOST_HANDED} requests wait for replies; tell those "
                    "first"
                )
            operators = wanted_operators(search, operator)
            found, reason = requests(search, len(handed) + 1, operators)
            new = next((each for each in found if each.sequence not in handed), None)
            if new is None or new.request is None:
                raise UsageError(f"run {search.run.name} has nothing to ask now: {reason}")
            handed.add(new.sequence)
            return Asked(
                ticket=request_id(search.run, new),
                key=new.request.key,
                operator=new.operator,
                task=search.run.task.name,
                parents=list(new.parents),
                prompt=conversation(new.request),
            )

    async def reply(self, ticket: str, key: str, text: str) -> Accepted:
        """Take a reply to a request in, and have the program in it judged.

        Raises:
            UsageError: it answers another request, or no verdict is left.
        """
        run, sequence = split(ticket)
        async with self._attached(run) as attached:
            search = attached.search
            reply = written_reply(text)
            number = _round_of(search.store, search.run, sequence, key)
            answer = Answer(
                path=Path(ticket),
                run=search.run.name,
                sequence=sequence,
                round=number,
                key=key,
                reply=reply,
            )
            if wrong := misplaced(search, answer):
                raise UsageError(f"ticket {ticket}: {wrong}")
            step = search.store.ticket(search.run.id, sequence)
            is_new = len(step.exchanges) <= number
            if is_new:
                self._budget.take("verdicts", 1)
                step = search.answered(step, reply, key=key)
                self._handed.get(search.run.name, set()).discard(sequence)
            return self._taken(attached, step, is_new=is_new)

    async def offer(
        self, run: str | None, source: str, parents: Sequence[int], note: str
    ) -> Accepted:
        """Have a program judged that does not answer a request.

        Raises:
            UsageError: a parent is no step of the run that made a program, or no verdict is left.
        """
        async with self._attached(run) as attached:
            search = attached.search
            rule = termination(search.store, search.run, search.run.config)
            if spent := rule.check(search.progress):
                raise UsageError(f"run {search.run.name}: {spent}")
            made = [_program(search.store, search.run, number) for number in parents]
            self._budget.take("verdicts", 1)
            step = search.offer(source, operator="agent", note=one_line(note), parents=made)
            return self._taken(attached, step, is_new=True)

    async def verdict(self, ticket: str, wait_s: float) -> Verdict:
        """Where a step stands, after `wait_s` or as soon as it has a verdict.

        A proposal that an earlier server left without one is judged now.

        Raises:
            UsageError: there is no such step.
        """
        run, sequence = split(ticket)
        until = time.monotonic() + wait_s
        verdict = self._look(run, sequence)
        if verdict.state == "waiting" and run not in self._open:
            async with self._attached(run) as attached:
                for proposed in waiting_tickets(attached.search):
                    attached.judge(proposed)
        while verdict.state == "waiting" and (left := until - time.monotonic()) > 0:
            async with self._news:
                try:
                    async with asyncio.timeout(min(left, LOOK_S)):
                        await self._news.wait()
                except TimeoutError:
                    pass
            verdict = self._look(run, sequence)
        return verdict

    async def close(self) -> None:
        """Let go of all runs."""
        for attached in self._open.values():
            await attached.close()
        self._open.clear()

    @asynccontextmanager
    async def _attached(self, run: str | None) -> AsyncIterator[Attached]:
        """The run, which stays attached after the block for as long as steps of it are judged."""
        async with self._turn:
            if run is None:
                with open_store(self._location) as store:
                    run = store.run(None).name
            if run not in self._open:
                self._open[run] = Attached(self._location, run, self._judge, self._told)
            try:
                yield self._open[run]
            finally:
                await self._leave()

    async def _told(self) -> None:
        """Wake those that wait, and let go of runs that are judged."""
        async with self._news:
            self._news.notify_all()
        asyncio.get_running_loop().call_later(0, lambda: asyncio.ensure_future(self._tidy()))

    async def _tidy(self) -> None:
        async with self._turn:
            await self._leave()

    async def _leave(self) -> None:
        for name, attached in list(self._open.items()):
            if not attached.is_busy:
                del self._open[name]
                await attached.close()

    def _taken(self, attached: Attached, step: Ticket, *, is_new: bool) -> Accepted:
        """Have a step judged that holds a program; otherwise a verdict just taken is given back."""
        name = request_id(attached.search.run, step)
        if step.state is TicketState.PROPOSED:
            attached.judge(step)
            return Accepted(ticket=name, state="judging")
        if step.state is TicketState.EVALUATED or step.evaluation is not None:
            return Accepted(ticket=name, state="done", message="it has a verdict already")
        if is_new:
            self._budget.give_back("verdicts", 1)
        if step.state is TicketState.ASKED:
            message = "one more round is asked for; `ask` gives it"
            return Accepted(ticket=name, state="asked_again", message=message)
        return Accepted(ticket=name, state="failed", message=step.failure)

    def _look(self, run: str, sequence: int) -> Verdict:
        with open_store(self._location) as store:
            found = stored_verdict(store, store.run(run), sequence)
        attached = self._open.get(run)
        message = found.message or (attached.trouble if attached else "")
        left = self._budget.left("verdicts")
        return found.model_copy(update={"message": message, "verdicts_left": left})


def split(ticket: str) -> tuple[str, int]:
    """RUN:STEP as its parts.

    Raises:
        UsageError: it is none.
    """
    run, _, number = ticket.rpartition(":")
    if not run or not number.isascii() or not number.isdigit() or len(number) > 18:
        raise UsageError(f"ticket {ticket!r}: it is RUN:STEP, as `ask` and `tell` give it")
    return run, int(number)


def stored_verdict(store: RunStore, run: RunRow, sequence: int) -> Verdict:
    """The verdict of a step as the database holds it.

    Raises:
        UsageError: there is no such step.
    """
    step, evaluation = store.step(run.id, sequence), store.evaluation(run.id, sequence)
    name = f"{run.name}:{sequence}"
    if evaluation is None:
        if step.failure:
            return Verdict(ticket=name, state="failed", message=step.failure)
        if step.program is None:
            return Verdict(ticket=name, state="asked", message="it waits for a reply: use `tell`")
        return Verdict(ticket=name, state="waiting")
    source = store.source(step.program) if step.program else ""
    findings = run.config.get("audit") and [dict(each) for each in findings_of(run.config)]
    return Verdict(
        ticket=name,
        state="done",
        archived=archived_text(step.offer),
        judge=f"{evaluation.device_class} {evaluation.evaluator_version}",
        **verdict_fields(verdict_answer(evaluation, run.baseline, source, findings)),
    )


def archived_text(offer: object) -> str:
    """The archive's answer to a program, in words; empty if it was not offered."""
    return "" if offer is None else str(getattr(offer, "name", offer)).lower().replace("_", " ")


def _round_of(store: RunStore, run: RunRow, sequence: int, key: str) -> int:
    """The round of a step whose text has a key; the newest if none has."""
    if not 0 <= sequence < store.next_sequence(run.id):
        return 0
    newest = len(store.ticket(run.id, sequence).exchanges)
    for number in range(newest + 1):
        if key in [text.key for text in store.texts(store.ticket(run.id, sequence), number)]:
            return number
    return newest


def _program(store: RunStore, run: RunRow, sequence: int) -> str:
    """The program that a step made.

    Raises:
        UsageError: it made none.
    """
    program = store.step(run.id, sequence).program
    if program is None:
        raise UsageError(f"parents: step {run.name}:{sequence} made no program; name one that did")
    return program
