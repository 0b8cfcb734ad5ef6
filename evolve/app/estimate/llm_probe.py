"""One real proposal per model before a run: its cost, and how well the model solves the task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from evolve.app import components
from evolve.app.database import location_of
from evolve.app.models import has_model
from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import CallStatus, LanguageModel, ModelReply, Reservation
from evolve.core.protocols import Evaluator, TerminationRule
from evolve.core.task import Task
from evolve.report.text import count_text, duration_text, one_line
from evolve.search.engine import Search
from evolve.search.execution.limits import with_reservations
from evolve.store import Store, Ticket, TicketState
from evolve.store.location import folder_of

FILE = "dry-runs.db"
"""Stored beside the database of runs: paid replies are kept, and no run is mistaken for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForecast:
    """The cost of a proposal, averaged over the models by weight, and how many calls run.

    `usd` is None if a cost is unknown.
    """

    tokens: float
    usd: float | None
    seconds: float
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One proposal of a model: the replies of its calls, and their result in words."""

    model: str
    weight: float
    replies: tuple[ModelReply, ...]
    said: str

    @property
    def is_counted(self) -> bool:
        """Whether every call was answered, with its tokens."""
        return bool(self.replies) and all(reply.usage is not None for reply in self.replies)

    @property
    def prompt(self) -> int:
        """Tokens that were sent."""
        return sum(reply.usage.prompt for reply in self.replies if reply.usage)

    @property
    def completion(self) -> int:
        """Tokens that came back."""
        return sum(reply.usage.completion for reply in self.replies if reply.usage)

    @property
    def usd(self) -> float | None:
        """Its cost; None if the cost of a call is unknown."""
        costs = [reply.cost_usd for reply in self.replies]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def seconds(self) -> float:
        return sum(reply.latency_s for reply in self.replies)


async def sample_calls(
    config: Mapping[str, Any], task: Task, evaluator: Evaluator
) -> tuple[list[Sample], int] | None:
    """Ask every model as a run would ask after its seeds were judged; None without a model.

    None for a run with a coding agent too.

    The second part is how many calls may be under way at once. Calls are committed, charged and
    kept as those of a run, in a database of their own (`FILE`), and stay within the run's limits.
    """
    if not has_model(config) or config["agent"]["command"]:
        return None  # an agent's episode takes minutes, and tries programs as steps of a run
    path = folder_of(location_of(config)) / FILE
    with Store.open(path, create=True) as store:
        names = {run.name for run in store.runs()}
        name = next(name for n in count(1) if (name := f"dry-run-{n}") not in names)
        run = store.create_run(name=name, task=task, config=config, seed=config["seed"])
        store.claim(run.id)
        search = components.build_search(store, run, config, device_class=evaluator.device_class)
        model, rule = search.model, components.build_termination(config)
        assert model is not None
        try:
            await _judge_seeds(search, evaluator)
            samples = [
                await _sample(search, model, rule, card.name, card.weight) for card in model.models
            ]
        finally:
            await model.close()
            store.release(run.id, "finished", "a dry run")
        return samples, model.slots


async def _judge_seeds(search: Search, evaluator: Evaluator) -> None:
    """Judge the programs that a run starts from, as prompts show the verdicts."""
    while (ticket := search.ask(models=())) is not None and not ticket.parents:
        if ticket.state is TicketState.PROPOSED:
            request = search.request(ticket)
            known = search.known(request, evaluator)
            search.tell(ticket, known or await evaluator.evaluate(request))


async def _sample(
    search: Search, model: LanguageModel, rule: TerminationRule, name: str, weight: float
) -> Sample:
    """A model's answer to one ticket, in as many rounds as its operator asks for."""
    ticket = search.ask(models=[name], operators=search.model_operators)
    if ticket is None or ticket.request is None:
        why = "; ".join(search.declined.values()) or "no operator asks it"
        return Sample(model=name, weight=weight, replies=(), said=f"not asked: {why}")
    replies: list[ModelReply] = []
    said = ""
    while ticket.request is not None and not said:
        worst = model.reserve(ticket.request)
        if over := rule.check(with_reservations(search.progress, worst)):
            said = f"not asked: {over}, counting a call with up to {worst.tokens:,} tokens"
            break
        reply, ticket = await _call(search, model, ticket, worst)
        if reply.status is CallStatus.UNAVAILABLE:
            said = reply.error
        else:
            replies.append(reply)
    said = said or ticket.failure or "a program"
    return Sample(model=name, weight=weight, replies=tuple(replies), said=said)


async def _call(
    search: Search, model: LanguageModel, ticket: Ticket, worst: Reservation
) -> tuple[ModelReply, Ticket]:
    """One call, committed before it is sent and stored before it is read."""
    assert ticket.request is not None
    calls: list[int] = []
    try:
        reply = await model.complete(
            ticket.request,
            ticket.sample,
            lambda: calls.append(search.store.begin_call(ticket, worst)),
        )
    except (ModelUnavailable, UsageError) as error:
        reply = ModelReply(status=CallStatus.UNAVAILABLE, error=str(error))
        if isinstance(error, UsageError):  # a person has to mend it
            for call in calls:
                search.store.end_call(call, reply)
            raise
    return reply, search.replied(calls[0], reply) if calls else ticket


def forecast(samples: Sequence[Sample], slots: int) -> CallForecast | None:
    """The average proposal; None if no model answered."""
    counted = [sample for sample in samples if sample.is_counted]
    total = sum(sample.weight for sample in counted)
    if not total:
        return None

    def mean(value: Callable[[Sample], float]) -> float:
        return sum(sample.weight * value(sample) for sample in counted) / total

    is_priced = all(sample.usd is not None for sample in counted)
    return CallForecast(
        tokens=mean(lambda sample: sample.prompt + sample.completion),
        usd=mean(lambda sample: sample.usd or 0.0) if is_priced else None,
        seconds=mean(lambda sample: sample.seconds),
        slots=slots,
    )


def call_lines(samples: Sequence[Sample]) -> Iterator[str]:
    """A line for every model that was asked."""
    for sample in samples:
        if not sample.is_counted:
            yield f"model       {sample.model}: {one_line(sample.said)}"
            continue
        cost = "cost unknown" if sample.usd is None else f"{sample.usd:.4f} USD"
        took = f"{count_text(len(sample.replies), 'call')}, {duration_text(sample.seconds)}"
        yield (
            f"model       {sample.model}: one proposal took {took}, "
            f"{count_text(sample.prompt, 'token')} in and {sample.completion:,} out, {cost}; it "
            f"gave {one_line(sample.said, 200)}"
        )
