"""One real call per model before a run: what a call takes, and what the model makes of the task."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.cli import parts
from evolve.core.errors import ModelUnavailable
from evolve.core.model import LanguageModel, ModelReply, ModelRequest
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.report.text import count_text, duration_text, one_line
from evolve.search.engine import Search
from evolve.search.proposing import Asked
from evolve.store import Store, TicketState


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForecast:
    """What a call takes on average over the models by their weights, and how many run at once.

    `usd` is None where a cost is unknown.
    """

    tokens: float
    usd: float | None
    seconds: float
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCall:
    """One call of a model; `reply` is None where none came, and `said` what came of it."""

    model: str
    weight: float
    reply: ModelReply | None
    said: str


async def sample_calls(
    config: Mapping[str, Any], task: Task, evaluator: Evaluator
) -> tuple[list[SampleCall], int] | None:
    """Ask every model what a run would ask after its seeds were judged; None without a model.

    The second part is how many calls may be under way at once.

    The run that this takes is in a database of its own, which is gone afterwards.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "dry.db", create=True) as store,
    ):
        run = store.create_run(name="dry-run", task=task, config=config, seed=config["seed"])
        store.claim(run.id)
        search = parts.build_search(store, run, config, device_class=evaluator.device_class)
        if search.model is None:
            return None
        await _judge_seeds(search, evaluator)
        cards = search.model.models
        found = [await _sample(search, search.model, card.name, card.weight) for card in cards]
        await search.model.close()
        return found, search.model.slots


async def _judge_seeds(search: Search, evaluator: Evaluator) -> None:
    """Judge what a run starts from, as prompts show the verdicts."""
    while (ticket := search.ask(models=())) is not None and not ticket.parents:
        if ticket.state is TicketState.PROPOSED:
            search.tell(ticket, await evaluator.evaluate(search.request(ticket)))


async def _sample(search: Search, model: LanguageModel, name: str, weight: float) -> SampleCall:
    asked = search.preview(models=[name], operators=search.model_operators)
    if asked is None or not isinstance(asked.outcome, ModelRequest):
        why = "; ".join(search.declined.values()) or "no operator asks a model"
        return SampleCall(model=name, weight=weight, reply=None, said=f"not asked: {why}")
    try:
        reply = await model.complete(asked.outcome)
    except ModelUnavailable as error:
        return SampleCall(model=name, weight=weight, reply=None, said=str(error))
    return SampleCall(model=name, weight=weight, reply=reply, said=_said(search, asked, reply))


def _said(search: Search, asked: Asked, reply: ModelReply) -> str:
    """What came of a reply, as the run would record it."""
    assert isinstance(asked.outcome, ModelRequest)
    parents = [elite.program for elite in asked.parents]
    [ticket] = search.store.request(
        search.run.id, asked.choice.operator, parents, asked.outcome, asked.choice.model
    )[:1]
    read = search.answered(ticket, reply)
    return read.failure or ("one more round" if read.request else "a program")


def forecast(calls: Sequence[SampleCall], slots: int) -> CallForecast | None:
    """The average call; None where no model answered."""
    answered = [call for call in calls if call.reply is not None and call.reply.usage is not None]
    total = sum(call.weight for call in answered)
    if not total:
        return None

    def mean(value: Any) -> float:
        return sum(call.weight * value(call.reply) for call in answered) / total

    priced = all(call.reply is not None and call.reply.cost_usd is not None for call in answered)
    return CallForecast(
        tokens=mean(lambda reply: reply.usage.total),
        usd=mean(lambda reply: reply.cost_usd) if priced else None,
        seconds=mean(lambda reply: reply.latency_s),
        slots=slots,
    )


def call_lines(calls: Sequence[SampleCall]) -> Iterator[str]:
    """A line for every model that was asked."""
    for call in calls:
        reply = call.reply
        if reply is None or reply.usage is None:
            yield f"model       {call.model}: {one_line(call.said)}"
            continue
        cost = "cost unknown" if reply.cost_usd is None else f"{reply.cost_usd:.4f} USD"
        yield (
            f"model       {call.model}: one call took {duration_text(reply.latency_s)}, "
            f"{count_text(reply.usage.prompt, 'token')} in and {reply.usage.completion:,} out, "
            f"{cost}; it gave {one_line(call.said, 200)}"
        )
